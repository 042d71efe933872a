/**
 * Moment: the segment map after the event that the cursor is on, and stepping from event to event.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const HELD_MS = 350; // from then on a button that is held repeats
  const REPEAT_MS = 60;

  let device = null;
  let event = null;
  let options = { sort: "size", pool: "all" };
  let asked = null;
  let isBusy = false;
  let painted = 0;
  let holding = null;

  const element = (id) => document.getElementById(id);
  const last = () => Math.max(device.events - 1, -1);

  /** Return an event within the trace; where only the end can be shown, that. */
  const told = (wanted) => (device.moments === "all" ? Math.min(Math.max(wanted, -1), last()) : last());

  /** Show the map after an event. */
  async function go(wanted) {
    if (!device) return;
    event = told(wanted);
    vramscope.place.set({ event });
    if (asked) asked.abort();
    const mine = (asked = new AbortController());
    const started = performance.now();
    isBusy = true;
    try {
      const found = await vramscope.server.bytes(vramscope.place.route("moment.bin"), { event, ...options }, mine.signal);
      if (mine.signal.aborted) return;
      const picture = vramscope.raster.parse(found);
      vramscope.segmentMap.show(picture, () => {
        performance.measure("vramscope moment to paint", { start: started, end: performance.now() });
        performance.clearMeasures("vramscope moment to paint"); // an observer has it
        element("map").dataset.painted = String(++painted);
      });
      describe(picture.header);
      vramscope.page.moved(picture.header);
    } catch (error) {
      if (!vramscope.server.isAbort(error)) vramscope.page.tell(error.message);
    } finally {
      if (asked === mine) isBusy = false;
    }
  }

  /** Say which event this is, and how far its map can be trusted. */
  function describe({ row, uncertain }) {
    const end = event === last() ? ", the end" : "";
    const place = `after event ${event} (${(event + 1).toLocaleString("en")} of ${device.events.toLocaleString("en")}${end})`;
    const text = event < 0 ? (device.events ? "before the first event" : "the file's final state") : `${place}: ${row ? row.label : ""}`;
    element("moment-event").textContent = vramscope.memoryWords.shortSite(text);
    element("moment-event").title = text;
    element("moment-note").textContent = uncertain ? `the ends of ${uncertain.toLocaleString("en")} blocks are not certain: they may be larger than drawn` : "";
    element("step-back").disabled = device.moments !== "all" || event <= -1;
    element("step-on").disabled = device.moments !== "all" || event >= last();
  }

  /** Go one event on or back; a step that comes while one is under way is left out. */
  function step(by) {
    if (!device || isBusy || device.moments !== "all") return;
    go(event + by).then(() => vramscope.page.revealCursor());
  }

  function hold(by) {
    step(by);
    clearTimeout(holding);
    const again = () => {
      step(by);
      holding = setTimeout(again, REPEAT_MS);
    };
    holding = setTimeout(again, HELD_MS);
  }

  function attach() {
    for (const [id, by] of [["step-back", -1], ["step-on", 1]]) {
      const found = element(id);
      found.addEventListener("pointerdown", () => hold(by));
      // A click without a pointer is the keyboard's.
      found.addEventListener("click", (click) => click.detail === 0 && step(by));
    }
    for (const name of ["pointerup", "pointercancel", "blur"]) window.addEventListener(name, () => clearTimeout(holding));
    document.addEventListener("keydown", (pressed) => {
      if (!["[", "]"].includes(pressed.key) || pressed.target.matches("input, textarea")) return;
      step(pressed.key === "]" ? 1 : -1);
      pressed.preventDefault();
    });
  }

  /** Take another device; null: none. */
  function open(found) {
    device = found;
    event = null;
    if (asked) asked.abort();
    vramscope.segmentMap.forget();
  }

  function setOptions(sort, pool) {
    if (sort === options.sort && pool === options.pool) return;
    options = { sort, pool };
    if (!device || event === null) return;
    vramscope.segmentMap.forget();
    go(event);
  }

  vramscope.moment = { attach, open, go, setOptions, event: () => event };
})();
