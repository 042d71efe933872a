/**
 * Memory lines: what lies over the painted timeline: the outline of the exact total, reserved and capacity, marks, cursor, selection.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const TONES = { oom: "--bad", peak: "--accent", snapshot: "--line-device", region: "--muted", annotation: "--muted", step: "--muted" };
  const RANKS = ["oom", "peak", "snapshot", "region", "step", "annotation"]; // whose label goes first where two would overlap
  const LABEL_GAP_PX = 8;
  const FONT = "11px Inter, 'Noto Sans', 'DejaVu Sans', system-ui, sans-serif";

  /** Draw everything over the pixels. `box` is the plotting area in CSS pixels, `view` what it shows. */
  function draw(context, box, view, frame, { marks, cursor, selection, capacity }) {
    const x = (at) => box.left + ((at - view.from) / (view.to - view.from)) * box.width;
    const y = (bytes) => box.top + box.height - (bytes / view.top) * box.height;
    context.save();
    context.beginPath();
    context.rect(box.left, 0, box.width, box.top + box.height);
    context.clip();
    drawSeries(context, frame, frame.high, x, y, "--text", 1);
    drawSeries(context, frame, frame.reserved, x, y, "--line-reserved", 1.5, [5, 3]);
    if (capacity && capacity <= view.top) drawLevel(context, box, y(capacity), "--bad");
    if (selection) drawLife(context, box, x, selection);
    if (cursor !== null) drawCursor(context, box, x(cursor));
    drawMarks(context, box, x, marks);
    context.restore();
  }

  /** Draw one value for each column as steps; an unknown one (NaN) interrupts the line. */
  function drawSeries(context, frame, values, x, y, colour, width, dash = []) {
    const { from, to } = frame.header;
    const step = (to - from) / values.length;
    context.beginPath();
    let pen = false;
    for (let column = 0; column < values.length; column++) {
      if (Number.isNaN(values[column])) {
        pen = false;
        continue;
      }
      const level = y(values[column]);
      if (pen) context.lineTo(x(from + column * step), level);
      else context.moveTo(x(from + column * step), level);
      context.lineTo(x(from + (column + 1) * step), level);
      pen = true;
    }
    context.setLineDash(dash);
    context.lineWidth = width;
    context.strokeStyle = vramscope.theme.colour(colour);
    context.stroke();
    context.setLineDash([]);
  }

  function drawLevel(context, box, level, colour) {
    context.strokeStyle = vramscope.theme.colour(colour);
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(box.left, level);
    context.lineTo(box.left + box.width, level);
    context.stroke();
  }

  /** Draw how long the selected allocation lived as a bar at the bottom, which shows also where it is too small to be drawn. */
  function drawLife(context, box, x, { from, to }) {
    const left = Math.max(x(from), box.left);
    context.fillStyle = vramscope.theme.colour("--text");
    context.fillRect(left, box.top + box.height - 3, Math.max(2, Math.min(x(to), box.left + box.width) - left), 3);
  }

  function drawCursor(context, box, at) {
    context.strokeStyle = vramscope.theme.colour("--text");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(Math.round(at) + 0.5, box.top - 4);
    context.lineTo(Math.round(at) + 0.5, box.top + box.height);
    context.stroke();
    context.fillStyle = vramscope.theme.colour("--text");
    context.beginPath();
    context.moveTo(at - 5, box.top - 6);
    context.lineTo(at + 6, box.top - 6);
    context.lineTo(at + 0.5, box.top + 1);
    context.fill();
  }

  /** Draw a tick for each mark, and its label where no more important one is in the way. */
  function drawMarks(context, box, x, marks) {
    const taken = [];
    context.font = FONT;
    context.textBaseline = "middle";
    const ordered = [...marks].sort((a, b) => RANKS.indexOf(a.kind) - RANKS.indexOf(b.kind) || a.at - b.at);
    for (const mark of ordered) {
      const colour = vramscope.theme.colour(TONES[mark.kind] || "--muted");
      const left = x(mark.at);
      context.fillStyle = colour;
      if (mark.until !== null && mark.until !== undefined) {
        context.fillRect(left, box.top - 8, Math.max(1, x(mark.until) - left), 2);
      }
      if (left < box.left || left > box.left + box.width) continue;
      context.globalAlpha = mark.kind === "oom" || mark.kind === "peak" ? 0.9 : 0.4;
      context.fillRect(left, box.top - 9, 1, mark.kind === "step" || mark.kind === "annotation" ? 9 : box.height + 9);
      context.globalAlpha = 1;
      label(context, box, left, mark.label, taken);
    }
  }

  function label(context, box, at, text, taken) {
    const shown = text.length > 34 ? `${text.slice(0, 32)}…` : text;
    const width = context.measureText(shown).width;
    const left = Math.max(box.left, Math.min(at - width / 2, box.left + box.width - width));
    if (taken.some(([from, to]) => left < to + LABEL_GAP_PX && left + width > from - LABEL_GAP_PX)) return;
    taken.push([left, left + width]);
    context.fillText(shown, left, box.top - 17);
  }

  vramscope.memoryLines = { draw };
})();
