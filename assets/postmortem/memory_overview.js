/**
 * Memory overview: the whole trace's outline below the timeline, with the range in view to drag, to widen, or to draw anew.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const EDGE_PX = 7;
  const LEFT_PX = 74;
  const RIGHT_PX = 14;

  let frame = null; // of the whole trace
  let grip = null; // {kind, at, from, to}: what is being dragged

  const canvas = () => document.getElementById("memory-overview");
  const timeline = () => vramscope.memoryTimeline;

  function scale() {
    const { header } = frame;
    const width = canvas().clientWidth - LEFT_PX - RIGHT_PX;
    const perPx = (header.axis_to - header.axis_from) / width;
    return { width, perPx, x: (at) => LEFT_PX + (at - header.axis_from) / perPx, at: (x) => header.axis_from + (x - LEFT_PX) * perPx };
  }

  /** Draw the outline and the range that the timeline shows. */
  function draw() {
    const host = canvas();
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [host.clientWidth, host.clientHeight];
    if (host.width !== Math.round(width * ratio) || host.height !== Math.round(height * ratio)) {
      host.width = Math.round(width * ratio);
      host.height = Math.round(height * ratio);
    }
    const context = host.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const { view } = timeline().state();
    if (!frame || !view || width <= LEFT_PX + RIGHT_PX) return;
    const { x, width: inner } = scale();
    const most = Math.max(1, vramscope.memoryFrame.highest(frame));
    context.fillStyle = vramscope.theme.colour("--s-active");
    context.globalAlpha = 0.55;
    const columns = frame.high.length;
    for (let px = 0; px < inner; px++) {
      let high = 0;
      const end = Math.max(Math.floor(((px + 1) / inner) * columns), Math.floor((px / inner) * columns) + 1);
      for (let column = Math.floor((px / inner) * columns); column < end; column++) high = Math.max(high, frame.high[column]);
      const tall = (high / most) * (height - 2);
      context.fillRect(LEFT_PX + px, height - tall, 1, tall);
    }
    context.globalAlpha = 1;
    const [left, right] = [Math.max(LEFT_PX, x(view.from)), Math.max(x(view.from) + 2, x(view.to))];
    context.fillStyle = vramscope.theme.colour("--panel");
    context.globalAlpha = 0.65;
    context.fillRect(LEFT_PX, 0, left - LEFT_PX, height);
    context.fillRect(right, 0, LEFT_PX + inner - right, height);
    context.globalAlpha = 1;
    context.strokeStyle = vramscope.theme.colour("--accent");
    context.lineWidth = 1.5;
    context.strokeRect(left + 0.75, 0.75, right - left - 1.5, height - 1.5);
  }

  function attach() {
    const host = canvas();
    host.addEventListener("pointerdown", (event) => {
      const { view } = timeline().state();
      if (!frame || !view) return;
      const { x, at } = scale();
      const px = event.offsetX;
      const [left, right] = [x(view.from), x(view.to)];
      const kind =
        Math.abs(px - left) <= EDGE_PX ? "from" : Math.abs(px - right) <= EDGE_PX ? "to" : px > left && px < right && right - left < scale().width - 2 ? "move" : "new";
      grip = { kind, at: at(px), from: view.from, to: view.to };
      host.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    host.addEventListener("pointermove", (event) => {
      if (!grip) return;
      const at = scale().at(event.offsetX);
      const { kind, from, to } = grip;
      if (kind === "move") timeline().go(from + at - grip.at, to + at - grip.at);
      else if (kind === "from") timeline().go(Math.min(at, to), Math.max(at, to));
      else if (kind === "to") timeline().go(Math.min(at, from), Math.max(at, from));
      else if (Math.abs(at - grip.at) / scale().perPx > 3) timeline().go(Math.min(at, grip.at), Math.max(at, grip.at));
    });
    for (const name of ["pointerup", "pointercancel"]) host.addEventListener(name, () => (grip = null));
    host.addEventListener("dblclick", () => timeline().showWhole());
  }

  function show(found) {
    const { from, to, axis_from: begin, axis_to: end } = found.header;
    if (from <= begin && to >= end) frame = found;
    else fetchWhole();
  }

  /** Fetch the outline where the page opened with a part of the trace. */
  async function fetchWhole() {
    const { axis } = timeline().state();
    const found = await vramscope.server.bytes(vramscope.place.route("timeline.bin"), { axis, width: 1000 }).catch(() => null);
    if (!found || axis !== timeline().state().axis) return;
    frame = vramscope.memoryFrame.parse(found);
    draw();
  }

  vramscope.memoryOverview = { attach, draw, show, forget: () => (frame = null), has: () => frame !== null };
})();
