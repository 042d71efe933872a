/**
 * Timeline: fetches the figure that dashboard/figures/timeline.py builds and shows it. It follows "now" until the user pans or
 * zooms; then it loads what that range needs, at the resolution that fits, and offers the way back.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const AFTER_PAN_MS = 150;
  const FOLLOW_MS = 1000;
  const FOLLOW_LONG_MS = 5000;
  const LONG_WINDOW_S = 600;
  const NARROW_PX = 500;
  const MARGIN = { l: 62, r: 14, t: 32, b: 24 };

  let plotted = null;
  let windowS = 60; // 0: everything there is
  let range = null; // [from, to] in Unix ms once the user has chosen one; null while following
  let figure = null;
  let asked = null; // the request in flight
  let timer = null;

  const element = (id) => document.getElementById(id);

  // Plotly shows dates as UTC; these move a moment to the browser's time zone and back.
  const toLocal = (ms) => ms - new Date(ms).getTimezoneOffset() * 60000;
  const toUtc = (ms) => ms + new Date(ms).getTimezoneOffset() * 60000;
  const parseAxis = (value) => (typeof value === "number" ? value : Date.parse(`${String(value).replace(" ", "T")}Z`));

  function attach() {
    const found = document.querySelector("#timeline-graph .js-plotly-plot");
    if (!found || !found.on || !found._fullLayout || !found._fullLayout._size) {
      setTimeout(attach, 50);
      return;
    }
    plotted = found;
    plotted.on("plotly_relayout", moved);
    plotted.on("plotly_doubleclick", backToNow);
    element("timeline").addEventListener("keydown", key);
    load();
  }

  function moved(event) {
    const from = event["xaxis.range[0]"] ?? (event["xaxis.range"] || [])[0];
    const to = event["xaxis.range[1]"] ?? (event["xaxis.range"] || [])[1];
    if (from !== undefined && to !== undefined) choose(toUtc(parseAxis(from)), toUtc(parseAxis(to)));
    else if (event["xaxis.autorange"]) backToNow();
  }

  function choose(from, to) {
    range = [from, to];
    element("timeline-now").hidden = false;
    clearTimeout(timer);
    timer = setTimeout(load, AFTER_PAN_MS);
  }

  function key(event) {
    if (!figure) return;
    const [from, to] = range || figure.range_ms;
    const width = to - from;
    if (event.key === "ArrowLeft") choose(from - width / 4, to - width / 4);
    else if (event.key === "ArrowRight") choose(from + width / 4, to + width / 4);
    else if (event.key === "+") choose(from + width / (range ? 4 : 2), range ? to - width / 4 : to); // at first, to the newest
    else if (event.key === "-") choose(from - width / 2, to + width / 2);
    else if (event.key === "0" || event.key === "Escape") backToNow();
    else return;
    event.preventDefault();
  }

  function backToNow() {
    range = null;
    element("timeline-now").hidden = true;
    load();
  }

  function setWindow(seconds) {
    windowS = seconds;
    backToNow();
  }

  /** Fetch the figure for the window or the range, show it, and come back for the next. */
  async function load() {
    clearTimeout(timer);
    if (!plotted) return;
    if (asked) asked.abort();
    const mine = (asked = new AbortController());
    const wanted = { width: Math.round(element("timeline").clientWidth - MARGIN.l - MARGIN.r) };
    if (range) Object.assign(wanted, { from: Math.max(0, Math.round(range[0] * 1000)), to: Math.max(1, Math.round(range[1] * 1000)) });
    else if (windowS) wanted.window_s = windowS;
    const paused = vramscope.live.pausedAt();
    if (paused) wanted.at = paused * 1000;
    const found = await vramscope.live.ask("live/timeline.json", wanted, mine.signal);
    if (mine.signal.aborted) return;
    asked = null;
    if (found && found.nothing) clear();
    else if (found) {
      figure = found;
      show();
    }
    next();
  }

  /** Come back later, unless the picture stands still. */
  function next() {
    clearTimeout(timer);
    if (range || vramscope.live.pausedAt() || document.hidden) return;
    timer = setTimeout(load, windowS && windowS <= LONG_WINDOW_S ? FOLLOW_MS : FOLLOW_LONG_MS);
  }

  /** Return a layout with the page's fonts, colours and margins around what the figure gives. */
  function styled(layout) {
    const theme = vramscope.theme;
    const line = theme.colour("--line");
    const muted = theme.colour("--muted");
    const text = theme.colour("--text");
    const axis = { gridcolor: line, linecolor: line, zeroline: false, automargin: false };
    const ticks = plotted.clientWidth < NARROW_PX ? 4 : 8;
    return {
      ...layout,
      uirevision: "timeline",
      margin: MARGIN,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 11, color: muted },
      showlegend: false,
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "pan",
      hovermode: "x unified",
      hoverlabel: { bgcolor: theme.colour("--panel"), bordercolor: line, font: { color: text, size: 11 } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: text },
      xaxis: { ...axis, ...layout.xaxis, showline: true, nticks: ticks, tickangle: 0, hoverformat: "%H:%M:%S.%L" },
      yaxis: { ...axis, ...layout.yaxis, fixedrange: true, nticks: 5 },
    };
  }

  function setNote(text) {
    const note = element("timeline-note");
    if (note.textContent !== text) note.textContent = text;
  }

  /** Show nothing: no device is chosen, or nothing is known of it. */
  function clear() {
    figure = null;
    setNote("no samples yet");
    if (plotted) window.Plotly.react(plotted, [], styled({ xaxis: { visible: false }, yaxis: { visible: false } }));
  }

  function show() {
    if (!figure || !plotted) return;
    const theme = vramscope.theme;
    const { data, layout } = theme.resolved({ data: figure.data, layout: figure.layout });
    for (const trace of data) trace.x = trace.x.map((ms) => (ms === null ? null : toLocal(ms)));
    for (const shape of layout.shapes) [shape.x0, shape.x1] = [toLocal(shape.x0), toLocal(shape.x1)];
    for (const label of layout.annotations) label.x = toLocal(label.x);
    layout.xaxis.range = (range || figure.range_ms).map(toLocal);
    window.Plotly.react(plotted, data, styled(layout));
    setNote(figure.note);
  }

  vramscope.timeline = { attach, load, show, clear, setWindow, backToNow };
})();
