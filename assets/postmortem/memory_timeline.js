/**
 * Memory timeline: the view of the active memory timeline – what range it shows, its pixels, its axes under Plotly – and when to fetch.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const AFTER_MOVE_MS = 90;
  const MARGIN = { l: 74, r: 14, t: 34, b: 24 };
  const ROOM_ABOVE = 1.06;
  const MOST_WIDTH = 4000;

  let device = null; // as state.json tells it
  let axis = "time";
  let colour = "category";
  let frame = null;
  let marks = [];
  let view = null; // {from, to, top}
  let plotted = null;
  let image = null;
  let pixels = null;
  let ids = null;
  let pixelsFor = null; // what the pixels were painted of
  let drawing = false;
  let asked = null;
  let timer = null;
  let afterPaint = null;
  let cursor = null; // a position on the axis
  let selection = null; // {allocation, from, to}
  let hovered = null; // an allocation's number
  let isPulled = false; // by the pointer, on Plotly's axes

  const element = (id) => document.getElementById(id);

  // ---- where things lie

  /** Return the plotting area in CSS pixels; Plotly uses the same margins. */
  function box() {
    const { clientWidth, clientHeight } = element("memory");
    const { l, r, t, b } = MARGIN;
    return { left: l, top: t, width: clientWidth - l - r, height: clientHeight - t - b, outerWidth: clientWidth, outerHeight: clientHeight };
  }

  const range = () => device.axes[axis];
  const whole = () => view && view.from <= range()[0] && view.to >= range()[1];
  // Plotly shows seconds since the trace began, or events: Unix µs do not fit its axes.
  const toPlot = (at) => (axis === "time" ? (at - range()[0]) / 1e6 : at);
  const fromPlot = (value) => (axis === "time" ? range()[0] + value * 1e6 : value);

  /** Return what is at a point of the window: the position on the axis and the number in the frame of the allocation, or -1. */
  function under(event) {
    const { left, top, width, height } = box();
    const outer = element("memory").getBoundingClientRect();
    const [x, y] = [event.clientX - outer.left - left, event.clientY - outer.top - top];
    if (!view || !image || x < 0 || x >= width || y < 0 || y >= height) return null;
    const scale = image.width / width;
    const at = view.from + (x / width) * (view.to - view.from);
    return { at, k: ids[Math.floor(y * scale) * image.width + Math.floor(x * scale)] ?? -1 };
  }

  // ---- drawing

  /** Ask for a drawing with the next frame. */
  function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(drawNow);
  }

  function drawNow() {
    drawing = false;
    const area = box();
    const canvas = element("memory-canvas");
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(area.width * scale), Math.round(area.height * scale)];
    if (!frame || width < 1 || height < 1) return;
    const outer = [Math.round(area.outerWidth * scale), Math.round(area.outerHeight * scale)];
    if (canvas.width !== outer[0] || canvas.height !== outer[1]) [canvas.width, canvas.height] = outer;
    const context = canvas.getContext("2d");
    if (!image || image.width !== width || image.height !== height) {
      image = context.createImageData(width, height);
      pixels = new Uint32Array(image.data.buffer);
      ids = new Int32Array(width * height);
      pixelsFor = null;
    }
    const marked = new Set([selection && selection.allocation, hovered]);
    const theme = vramscope.theme.colour("--panel");
    const painted = [frame.header.token, view.from, view.to, view.top, theme, ...marked].join();
    if (painted !== pixelsFor) {
      vramscope.memoryFrame.paint(frame, view, pixels, ids, width, height, vramscope.memoryColours.forFrame(frame, theme), marked);
      pixelsFor = painted;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.putImageData(image, Math.round(area.left * scale), Math.round(area.top * scale));
    context.setTransform(scale, 0, 0, scale, 0, 0);
    vramscope.memoryLines.draw(context, area, view, frame, { marks, cursor, selection, capacity: device.capacity_bytes });
    vramscope.memoryOverview.draw();
    if (afterPaint) afterPaint();
    afterPaint = null;
  }

  // ---- the range

  /** Show a range, at once from what is there, and exactly as soon as the server has answered. */
  function go(from, to, wait = AFTER_MOVE_MS) {
    const [least, most] = range();
    const least_width = axis === "time" ? 1 : 2;
    const width = Math.min(Math.max(to - from, least_width), most - least);
    const start = Math.min(Math.max(from, least), most - width);
    view = { from: start, to: start + width, top: view ? view.top : 1 };
    axes();
    draw();
    vramscope.place.set(whole() ? { from: null, to: null } : { from: Math.round(start), to: Math.round(start + width) });
    clearTimeout(timer);
    timer = setTimeout(load, wait);
  }

  const showWhole = () => device && device.axes[axis] && go(...range(), 0);

  /** Bring a position into view, in the middle where it is outside. */
  function reveal(at) {
    if (!view || (at >= view.from && at <= view.to)) return;
    const width = view.to - view.from;
    go(at - width / 2, at + width / 2);
  }

  function zoom(factor, at = (view.from + view.to) / 2) {
    go(at - (at - view.from) * factor, at + (view.to - at) * factor);
  }

  const pan = (share) => go(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

  // ---- fetching

  /** Fetch the frame of the view, and its marks. */
  async function load() {
    clearTimeout(timer);
    if (!device || !view) return;
    if (asked) asked.abort();
    const mine = (asked = new AbortController());
    const started = performance.now();
    const width = Math.min(MOST_WIDTH, Math.max(50, Math.round(box().width * (window.devicePixelRatio || 1))));
    const params = { axis, from: Math.round(view.from), to: Math.round(view.to), width, colour };
    try {
      const marked = vramscope.server.json(vramscope.place.route("marks.json"), { axis, from: params.from, to: params.to }, mine.signal);
      marked.catch(() => undefined); // the first failure is told
      const found = vramscope.memoryFrame.parse(await vramscope.server.bytes(vramscope.place.route("timeline.bin"), params, mine.signal));
      if (mine.signal.aborted) return;
      show(found, started);
      const told = await marked;
      if (mine.signal.aborted) return;
      marks = told.marks;
      if (told.left_out) vramscope.memoryWords.show(found, told.left_out);
      draw();
    } catch (error) {
      if (!vramscope.server.isAbort(error)) vramscope.page.tell(error.message);
    }
  }

  let shown = 0;

  function show(found, started) {
    frame = found;
    frame.header.token = ++shown;
    view.top = Math.max(1, vramscope.memoryFrame.highest(found) * ROOM_ABOVE);
    if (whole() || !vramscope.memoryOverview.has()) vramscope.memoryOverview.show(found);
    axes();
    afterPaint = () => {
      performance.measure("vramscope timeline to paint", { start: started, end: performance.now() });
      performance.clearMeasures("vramscope timeline to paint"); // an observer has it
      element("memory").dataset.painted = String(shown);
    };
    vramscope.memoryWords.show(found);
    vramscope.tables.ranged();
    draw();
  }

  // ---- Plotly's axes

  /** Let Plotly's axes show the view; not while they are pulled, since Plotly counts from the range that they had before. */
  function axes() {
    if (!plotted || !view || isPulled) return;
    const ticks = vramscope.memoryWords.byteTicks(view.top);
    const theme = vramscope.theme;
    window.Plotly.relayout(plotted, {
      dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "pan",
      "font.color": theme.colour("--muted"),
      "font.size": 11,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.colour("--muted"), activecolor: theme.colour("--text") },
      "xaxis.range": [toPlot(view.from), toPlot(view.to)],
      "xaxis.ticksuffix": axis === "time" ? "s" : "", // behind Plotly's own prefix: 50μs
      "xaxis.exponentformat": axis === "time" ? "SI" : "none",
      "xaxis.separatethousands": true,
      "xaxis.ticklabelstandoff": 3,
      "yaxis.range": [0, view.top],
      "yaxis.ticklabelstandoff": 4,
      "yaxis.tickvals": ticks.map(([value]) => value),
      "yaxis.ticktext": ticks.map(([, text]) => text),
      "yaxis.showticklabels": true,
    });
  }

  /** Follow what the user does to Plotly's axes; our own changes come back as events too, and change nothing. */
  function follow(event, isOver) {
    const ends = [0, 1].map((end) => event[`xaxis.range[${end}]`]);
    if (event["xaxis.autorange"]) showWhole();
    if (!device || !view || ends[0] === undefined || ends[1] === undefined) return;
    const [from, to] = ends.map(fromPlot);
    isPulled = !isOver;
    if (isOver) go(from, to);
    else {
      view = { ...view, from, to };
      draw();
    }
  }

  // ---- what the page asks of the timeline

  /** Take the page's elements once they are there, and Plotly's part when it has come. */
  function attach() {
    const found = document.querySelector("#memory-graph .js-plotly-plot");
    if (!found || !found.on || !found._fullLayout || !found._fullLayout._size) {
      setTimeout(attach, 50);
      return;
    }
    plotted = found;
    plotted.on("plotly_relayouting", (event) => follow(event, false));
    plotted.on("plotly_relayout", (event) => follow(event, true));
    axes();
  }

  /** Show a device from its whole trace, or from the range in the place; null: nothing. Returns when it has been fetched. */
  async function open(found, options) {
    device = found;
    ({ axis, colour } = options);
    frame = view = cursor = selection = hovered = null;
    marks = [];
    vramscope.memoryOverview.forget();
    if (!device) return;
    const { from, to } = vramscope.place.now;
    view = { from: range()[0], to: range()[1], top: 1 };
    if (from !== null && to !== null && to > from) go(from, to, 0);
    else await load();
  }

  function setColour(value) {
    colour = value;
    load();
  }

  /** Put the cursor at a position on the axis, null: nowhere. */
  function setCursor(at) {
    cursor = at;
    draw();
  }

  /** Let an allocation stand out ({allocation, from, to} on the axis), null: none. */
  function select(found) {
    selection = found;
    draw();
  }

  function hover(k) {
    const found = k < 0 ? null : frame.allocation[k];
    if (found === hovered) return;
    hovered = found;
    draw();
  }

  function exportPng(title) {
    if (frame && plotted) vramscope.png.save(element("memory-canvas"), plotted, title, "vramscope-memory-timeline.png");
  }

  vramscope.memoryTimeline = { attach, open, draw, axes, go, zoom, pan, reveal, showWhole, setColour, setCursor, select, hover,
    under, exportPng, box, state: () => ({ device, axis, frame, view, cursor }) };
})();
