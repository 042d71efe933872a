/**
 * Live: what this tab shows and how it keeps up. One pulse asks for the map four times a second ("is there a newer one?"), slower
 * while the tab is hidden or the server does not answer. Each tab has a state of its own; nothing here is shared between two.
 * The functions under window.dash_clientside.vramscope are the browser's half of dashboard/callbacks/browser.py.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const PULSE_MS = 250;
  const HIDDEN_MS = 5000;
  const MOST_BACKOFF_MS = 5000;
  const RATE_OVER_MS = 5000;
  const STALE_MS = 5000;
  const CHARTS_AFTER_PAINT_MS = 100; // a few frames, so that the picture is on the screen before Plotly starts
  const CHARTS_AFTER_MS = 1000;

  let selection = null; // {job, rank, device}
  let options = { sort: "size", pool: "all" };
  let paused = 0; // the moment (Unix ms) at which the picture was frozen; 0 while it is live
  let token = null; // tells the map that is shown from any other
  let failures = 0;
  let timer = null;
  let asked = null;
  let arrivals = [];
  let latencyMs = null;
  let shown = null; // {timeUs, madeAt}: when the shown map was taken, on the job's clock and on this page's

  const element = (id) => document.getElementById(id);
  const prefix = () => JSON.parse(element("_dash-config").textContent).requests_pathname_prefix;

  /** Return the address of one of the page's routes for the current selection. */
  function address(path, params) {
    const query = new URLSearchParams({ job: selection.job, device: selection.device });
    if (selection.rank !== null) query.set("rank", selection.rank);
    for (const [name, value] of Object.entries(params)) query.set(name, value);
    return `${prefix()}${path}?${query}`;
  }

  const ready = () => selection && selection.job !== null && selection.device !== null;

  /** Fetch JSON for the current selection; null where there is none, or the server does not answer. */
  async function ask(path, params, signal) {
    if (!ready()) return null;
    try {
      const response = await fetch(address(path, params), { signal });
      return response.ok ? await response.json() : null;
    } catch {
      return null; // the pulse tells the user that the server is away
    }
  }

  /** Ask for a newer map, show it, and come back. */
  async function pulse() {
    clearTimeout(timer);
    if (!ready() || (paused && token)) return;
    if (asked) asked.abort();
    const mine = (asked = new AbortController());
    const started = performance.now();
    try {
      const params = { ...options, ...(token ? { since: token } : {}) };
      const response = await fetch(address("live/blocks.bin", params), { signal: mine.signal });
      await answered(response, started, mine.signal);
    } catch (error) {
      if (mine.signal.aborted) return; // another selection has its own pulse
      serverGone(`The dashboard does not answer – retrying. The page keeps its last picture.`);
      if (!(error instanceof TypeError)) console.error(error);
    }
    const backoff = Math.min(PULSE_MS * 2 ** failures, MOST_BACKOFF_MS);
    const wait = document.hidden ? HIDDEN_MS : Math.max(backoff - (performance.now() - started), 20);
    timer = setTimeout(pulse, wait);
  }

  async function answered(response, started, signal) {
    if (response.status === 401 || response.status === 403) {
      serverGone("This vramscope was started anew, with another token: open the URL that it printed.");
      return;
    }
    if (!response.ok) throw new TypeError(`the server answered ${response.status}`);
    const fresh = response.headers.get("Content-Type").startsWith("application/octet-stream");
    const body = fresh ? await response.arrayBuffer() : await response.json();
    if (signal.aborted) return;
    serverBack();
    if (fresh) {
      const arrived = performance.now();
      const picture = vramscope.raster.parse(body);
      token = picture.header.token;
      shown = { timeUs: picture.header.time_unix_us, madeAt: arrived - picture.header.age_us / 1000 };
      vramscope.segmentMap.show(picture, () => painted(started, arrived));
    } else if (body.nothing && token) {
      token = null;
      vramscope.segmentMap.forget();
    }
    showRate();
  }

  /** Note how long the newest map took; benchmarks read the measure as it passes. */
  function painted(started, arrived) {
    const now = performance.now();
    arrivals.push(now);
    const age = now - shown.madeAt;
    latencyMs = latencyMs === null ? age : latencyMs * 0.8 + age * 0.2;
    for (const [name, start] of [["vramscope data to paint", arrived], ["vramscope request to paint", started]]) {
      performance.measure(name, { start, end: now });
      performance.clearMeasures(name); // an observer has it; a page that stays open all day must not gather them
    }
    if (element("picture").dataset.painted) return;
    element("picture").dataset.painted = "true";
    setTimeout(chartsDue, CHARTS_AFTER_PAINT_MS);
  }

  let chartsCalled = false;

  /** Let the callbacks put Plotly's parts in, which keep the browser busy for as long as the first picture takes to come. */
  function chartsDue() {
    if (chartsCalled) return;
    chartsCalled = true;
    window.dash_clientside.set_props("charts-due", { data: true });
  }

  function showRate() {
    const now = performance.now();
    arrivals = arrivals.filter((moment) => now - moment < RATE_OVER_MS);
    const hz = arrivals.length > 1 ? (arrivals.length - 1) / ((now - arrivals[0]) / 1000) : 0;
    const text = hz && latencyMs !== null ? `${hz < 1 ? hz.toFixed(1) : Math.round(hz)} Hz · ${Math.round(latencyMs)} ms` : "";
    const target = element("light-rate");
    if (target.textContent !== text) target.textContent = text;
    if (shown) vramscope.segmentMap.setAsOf(now - shown.madeAt > STALE_MS ? shown.timeUs : null);
  }

  function serverGone(line) {
    failures += 1;
    const banner = element("server-gone");
    if (failures < 2 && !line.startsWith("This")) return; // one lost answer is no news
    banner.textContent = line;
    banner.hidden = false;
    document.body.classList.add("server-gone");
    setTick();
  }

  function serverBack() {
    if (!failures) return;
    failures = 0;
    element("server-gone").hidden = true;
    document.body.classList.remove("server-gone");
    setTick();
  }

  function restart() {
    token = null;
    arrivals = [];
    latencyMs = null;
    pulse();
  }

  /** Let the callbacks' second tick while the tab is seen, not paused, and somebody answers. */
  function setTick() {
    const gone = document.body.classList.contains("server-gone");
    window.dash_clientside.set_props("tick", { disabled: Boolean(paused) || document.hidden || gone });
  }

  function selectBlock(found) {
    window.dash_clientside.set_props("selected-block", { data: found });
  }

  let lastPicked = null;

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    vramscope: {
      /** Another job, rank or GPU was chosen: show it, and let the URL say so. */
      select(chosen) {
        if (JSON.stringify(chosen) === JSON.stringify(selection)) return;
        const first = selection === null;
        selection = chosen;
        if (!ready()) {
          token = null;
          vramscope.segmentMap.forget();
          vramscope.timeline.clear();
          return;
        }
        const query = new URLSearchParams({ job: chosen.job, rank: chosen.rank, gpu: chosen.device });
        window.history.replaceState(null, "", `?${query}`);
        if (!first) {
          vramscope.segmentMap.forget();
          selectBlock(null);
        }
        restart();
        vramscope.timeline.load();
        setTimeout(chartsDue, CHARTS_AFTER_MS); // some devices have no map, but all have a timeline
      },
      /** Freeze the page or go on; the collecting goes on either way. */
      pause(clicks) {
        paused = clicks % 2 ? Date.now() : 0;
        setTick();
        if (!paused) {
          restart();
          vramscope.timeline.load();
        }
        return [Boolean(paused), paused ? "Resume" : "Pause", paused ? "true" : "false"];
      },
      mapOptions(colour, sort, pool, shown) {
        vramscope.segmentMap.setOptions(colour, shown);
        if (sort === options.sort && pool === options.pool) return;
        options = { sort, pool };
        vramscope.segmentMap.forget();
        restart();
      },
      exportMap(clicks) {
        if (!clicks) return;
        const name = element("device-name").textContent;
        vramscope.segmentMap.exportPng(`${selection.job} · rank ${selection.rank} · ${name} · ${new Date().toLocaleString()}`);
      },
      timelineWindow: (seconds) => vramscope.timeline.setWindow(Number(seconds)),
      backToNow: (clicks) => (clicks ? vramscope.timeline.backToNow() : undefined),
      theme: (value) => vramscope.theme.show(value),
      snapshotsShown: (hidden) => vramscope.snapshots.shown(hidden),
      /** A row of the table was chosen: select its block. The grid reports the same row again with each refresh. */
      pickOwner(rows) {
        const found = rows && rows.length ? rows[0].address : null;
        if (found === lastPicked) return;
        lastPicked = found;
        if (found) selectBlock(found);
      },
      showBlock: (found) => vramscope.segmentMap.mark(found),
      exportOwners: (clicks) => Boolean(clicks),
    },
  });

  vramscope.live = { ask, pausedAt: () => paused };
  // What the segment map asks of the page it is on.
  vramscope.page = { selectBlock, describeBlock: (address) => ask("live/block.json", { address }) };

  document.addEventListener("visibilitychange", () => {
    setTick();
    if (document.hidden) return;
    pulse();
    vramscope.timeline.load();
  });

  vramscope.start = () => {
    vramscope.theme.onChange(() => {
      vramscope.segmentMap.repaint();
      vramscope.timeline.show();
    });
    vramscope.segmentMap.attach();
    vramscope.timeline.attach();
  };
  document.addEventListener("DOMContentLoaded", () => vramscope.start());
})();
