/**
 * Memory frame: reads the binary frame of dashboard/figures/timeline_frame.py and paints its allocations, stacked, as pixels.
 * Pure: typed arrays in, pixels out; it knows no element of the page.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const SEPARATOR_FROM_PX = 4;
  const HATCH_PX = 4;
  const NOTHING = -1;

  /** Read a frame. Throws when it is not one. */
  function parse(buffer) {
    const { header, take } = vramscope.binaryFrame.open(buffer, 0x56544c31, "memory timeline");
    const { drawn, width } = header;
    const frame = { header };
    for (const name of ["start", "end", "bytes"]) frame[name] = take(Float64Array, drawn);
    for (const name of ["level", "low", "high", "rest", "reserved"]) frame[name] = take(Float64Array, width);
    for (const name of ["allocation", "colour"]) frame[name] = take(Uint32Array, drawn);
    frame.flags = take(Uint8Array, drawn);
    return frame;
  }

  /** Return the highest level within the frame, what is reserved included. */
  function highest(frame) {
    let most = 0;
    for (const value of frame.high) if (value > most) most = value;
    for (const value of frame.reserved) if (value > most) most = value; // NaN, where unknown, is never more
    return most;
  }

  /** Return the column of the frame at a position on the axis, or -1 outside of it. */
  function columnAt(frame, at) {
    const { from, to, width } = frame.header;
    const column = Math.floor(((at - from) / (to - from)) * width);
    return column >= 0 && column < width ? column : -1;
  }

  let tops = new Float64Array(0);

  /**
   * Paint `view` ({from, to} on the axis, `top` bytes at the upper edge) into `pixels`, and into `ids` which allocation each
   * pixel shows. A pixel's column shows what lived at its left edge, so the stack there ends at the exact level.
   * `colours.of(frame, k)` is the pixel of the k-th allocation; `marked` are allocations whose edges stand out.
   */
  function paint(frame, view, pixels, ids, width, height, colours, marked) {
    pixels.fill(0);
    ids.fill(NOTHING);
    if (tops.length < width) tops = new Float64Array(width);
    tops.fill(0, 0, width);
    const perAxis = width / (view.to - view.from);
    const perByte = height / view.top;
    for (let k = 0; k < frame.start.length; k++) {
      const first = Math.max(0, Math.ceil((frame.start[k] - view.from) * perAxis));
      const end = Math.min(width, Math.ceil((frame.end[k] - view.from) * perAxis));
      if (end <= first) continue;
      const tall = frame.bytes[k] * perByte;
      const fill = colours.of(frame, k);
      const strong = marked.has(frame.allocation[k]);
      for (let x = first; x < end; x++) {
        const bottom = Math.round(tops[x]);
        tops[x] += tall;
        const top = Math.min(Math.round(tops[x]), height);
        for (let y = bottom; y < top; y++) {
          const at = (height - 1 - y) * width + x;
          pixels[at] = strong && (y - bottom < 2 || top - y <= 2 || x - first < 2 || end - x <= 2) ? colours.mark : fill;
          ids[at] = k;
        }
        if (!strong && top - bottom >= SEPARATOR_FROM_PX) pixels[(height - top) * width + x] = colours.separator;
      }
    }
    paintRest(frame, view, pixels, width, height, perAxis, perByte, colours);
  }

  /** Paint the band of what is too small to be drawn, hatched, from the stack's top up to the exact level. */
  function paintRest(frame, view, pixels, width, height, perAxis, perByte, colours) {
    for (let x = 0; x < width; x++) {
      const column = columnAt(frame, view.from + x / perAxis);
      if (column < 0) continue;
      const top = Math.min(Math.round((tops[x] + frame.rest[column] * perByte)), height);
      for (let y = Math.round(tops[x]); y < top; y++) {
        const row = height - 1 - y;
        pixels[row * width + x] = Math.floor((x + row) / HATCH_PX) % 2 ? colours.restDark : colours.restLight;
      }
    }
  }

  vramscope.memoryFrame = { parse, paint, highest };
})();
