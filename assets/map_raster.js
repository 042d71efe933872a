/**
 * Map raster: reads the binary frame of dashboard/figures/segment_map.py and paints it as runs of pixels.
 * Pure: typed arrays in, pixels and numbers out; it knows no element of the page. The work grows with what is in view.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const UNIT_BYTES = 512;
  const STATE_MASK = 7;
  const CONTINUES = 8;
  const UNMAPPED = 3;
  const CLEAR = 0;
  const SEPARATOR_FROM_PX = 5;
  const EDGE_FROM_PX = 6;
  const CODES = 260; // owner codes are bytes; four states follow them.

  /** Read a frame. Throws when it is not one. */
  function parse(buffer) {
    const { header, take } = vramscope.binaryFrame.open(buffer, 0x56534d31, "segment map");
    const { lines, gaps, pieces, rows } = header;
    const picture = {
      header,
      lineAddress: take(Float64Array, lines),
      lineBytes: take(Float64Array, lines),
      gapBytes: take(Float64Array, gaps),
      lineRow: take(Uint32Array, lines),
      lineFirst: take(Uint32Array, lines + 1),
      gapPiece: take(Uint32Array, gaps),
      pieceUnits: take(Uint32Array, pieces),
      rowStream: take(Uint8Array, rows),
      rowPool: take(Uint8Array, rows),
      rowFlags: take(Uint8Array, rows),
      pieceState: take(Uint8Array, pieces),
      pieceOwner: take(Uint8Array, pieces),
      pieceStart: new Uint32Array(pieces),
    };
    for (let line = 0; line < lines; line++) {
      let start = 0;
      for (let i = picture.lineFirst[line]; i < picture.lineFirst[line + 1]; i++) {
        picture.pieceStart[i] = start;
        start += picture.pieceUnits[i];
      }
    }
    return picture;
  }

  /** Return the index of the first piece of a line that ends after `unit`. */
  function firstAfter(picture, line, unit) {
    let low = picture.lineFirst[line];
    let high = picture.lineFirst[line + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (picture.pieceStart[middle] + picture.pieceUnits[middle] <= unit) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Return where a line lies in pixels: [top, bottom), with a gap to the next where there is room for one. */
  function linePixels(view, line, height) {
    const scale = height / (view.y1 - view.y0);
    const top = Math.floor((line - view.y0) * scale);
    let bottom = Math.floor((line + 1 - view.y0) * scale);
    if (scale >= 4) bottom -= Math.max(1, Math.round(scale * 0.14));
    return [top, Math.max(bottom, top + 1)];
  }

  const weights = new Float64Array(CODES);

  /**
   * Paint the lines in `view` ({x0, x1} shares of a line, {y0, y1} lines) into `pixels` (width × height, RGBA as Uint32).
   * `palette.fill` and `palette.edge` hold a pixel for each owner code and, from 256 on, for each state. A pixel that several
   * pieces share takes the colour of the one with the most bytes in it.
   */
  function paint(picture, view, pixels, width, height, palette, byOwner) {
    pixels.fill(CLEAR);
    const begin = Math.max(0, Math.floor(view.y0));
    const end = Math.min(picture.lineRow.length, Math.ceil(view.y1));
    let lastTop = -1;
    for (let line = begin; line < end; line++) {
      const [wantedTop, wantedBottom] = linePixels(view, line, height);
      if (wantedTop === lastTop) continue; // thinner than a pixel: the line before has it already
      lastTop = wantedTop;
      const top = Math.max(0, wantedTop);
      const bottom = Math.min(height, wantedBottom);
      if (bottom <= top) continue;
      const codes = lineCodes(picture, view, line, width, byOwner);
      const base = top * width;
      for (let x = 0; x < width; x++) pixels[base + x] = codes[x] < 0 ? CLEAR : palette.fill[codes[x]];
      for (let y = top + 1; y < bottom; y++) pixels.copyWithin(y * width, base, base + width);
      if (bottom - top >= EDGE_FROM_PX) {
        for (const y of [top, bottom - 1]) {
          for (let x = 0; x < width; x++) if (codes[x] >= 0) pixels[y * width + x] = palette.edge[codes[x]];
        }
      }
    }
  }

  let codeBuffer = new Int16Array(0);

  /** Return for each pixel of a line the code to paint, -1 for none. The buffer is used again by the next call. */
  function lineCodes(picture, view, line, width, byOwner) {
    if (codeBuffer.length < width + 1) codeBuffer = new Int16Array(width + 1);
    const codes = codeBuffer.fill(-1);
    const units = picture.lineBytes[line] / UNIT_BYTES;
    const scale = width / ((view.x1 - view.x0) * units);
    const from = view.x0 * units;
    const last = picture.lineFirst[line + 1];
    let mixed = -1; // the pixel whose weights are being gathered
    let mostCode = -1;
    const gather = (pixel, code, weight) => {
      if (pixel !== mixed) {
        weights.fill(0);
        mixed = pixel;
        mostCode = code;
      }
      weights[code] += weight;
      if (weights[code] >= weights[mostCode]) mostCode = code;
      codes[pixel] = mostCode;
    };
    for (let i = firstAfter(picture, line, from); i < last; i++) {
      const left = (picture.pieceStart[i] - from) * scale;
      if (left >= width) break;
      const right = Math.min(left + picture.pieceUnits[i] * scale, width);
      const state = picture.pieceState[i] & STATE_MASK;
      const code = byOwner && picture.pieceOwner[i] !== 255 ? picture.pieceOwner[i] : 256 + state;
      const a = Math.max(0, Math.floor(left));
      const b = Math.floor(right);
      if (a === b) {
        if (a < width) gather(a, code, right - Math.max(left, 0));
        continue;
      }
      gather(a, code, a + 1 - Math.max(left, 0));
      if (b > a + 1) codes.fill(code, a + 1, b);
      if (b < width) gather(b, code, right - b);
      if (b - a >= SEPARATOR_FROM_PX && b < width) codes[b - 1] = -1;
    }
    return codes;
  }

  /** Return the piece under a point (shares 0..1 of the plot), or -1. */
  function hit(picture, view, x, y) {
    const line = Math.floor(view.y0 + y * (view.y1 - view.y0));
    if (x < 0 || x >= 1 || line < 0 || line >= picture.lineRow.length) return -1;
    const unit = ((view.x0 + x * (view.x1 - view.x0)) * picture.lineBytes[line]) / UNIT_BYTES;
    const piece = firstAfter(picture, line, unit);
    return piece < picture.lineFirst[line + 1] ? piece : -1;
  }

  /** Return the line of a piece. */
  function lineOf(picture, piece) {
    let low = 0;
    let high = picture.lineRow.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (picture.lineFirst[middle] <= piece) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Return the real bytes of a piece; an unmapped one may be drawn shorter than it is. */
  function realBytes(picture, piece) {
    if ((picture.pieceState[piece] & STATE_MASK) !== UNMAPPED) return picture.pieceUnits[piece] * UNIT_BYTES;
    let low = 0;
    let high = picture.gapPiece.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (picture.gapPiece[middle] < piece) low = middle + 1;
      else high = middle;
    }
    return picture.gapBytes[low];
  }

  /** Return the whole block that a piece belongs to: its pieces [first, last], address, bytes, state, owner and row. */
  function block(picture, piece) {
    let first = piece;
    while (first > 0 && picture.pieceState[first] & CONTINUES) first--;
    let last = piece;
    while (last + 1 < picture.pieceState.length && picture.pieceState[last + 1] & CONTINUES) last++;
    const line = lineOf(picture, first);
    let address = picture.lineAddress[line];
    for (let i = picture.lineFirst[line]; i < first; i++) address += realBytes(picture, i);
    let bytes = 0;
    for (let i = first; i <= last; i++) bytes += realBytes(picture, i);
    const state = picture.pieceState[first] & STATE_MASK;
    return { first, last, address, bytes, state, owner: picture.pieceOwner[first], row: picture.lineRow[line] };
  }

  /** Return the piece that holds an address, or -1. */
  function pieceAt(picture, address) {
    for (let line = 0; line < picture.lineRow.length; line++) {
      if (picture.lineAddress[line] > address) continue;
      let at = picture.lineAddress[line];
      // Drawn bytes bound a line's real bytes from below only where a gap was shortened, so walk when in doubt.
      const shortened = picture.rowFlags[picture.lineRow[line]] & 8;
      if (!shortened && at + picture.lineBytes[line] <= address) continue;
      for (let i = picture.lineFirst[line]; i < picture.lineFirst[line + 1]; i++) {
        at += realBytes(picture, i);
        if (address < at) return i;
      }
    }
    return -1;
  }

  /** Return bytes by state ([active, pending, inactive, unmapped]), and address, of each row; worked out once. */
  function rowSums(picture) {
    if (picture.sums) return picture.sums;
    const rows = Array.from(picture.rowStream, () => ({ address: Infinity, bytes: [0, 0, 0, 0] }));
    for (let line = 0; line < picture.lineRow.length; line++) {
      const row = rows[picture.lineRow[line]];
      row.address = Math.min(row.address, picture.lineAddress[line]);
      for (let i = picture.lineFirst[line]; i < picture.lineFirst[line + 1]; i++) {
        row.bytes[picture.pieceState[i] & STATE_MASK] += realBytes(picture, i);
      }
    }
    picture.sums = rows;
    return rows;
  }

  /** Return the piece before or after the block of a piece. */
  function beside(picture, piece, step) {
    const found = block(picture, piece);
    const next = step < 0 ? found.first - 1 : found.last + 1;
    return Math.min(Math.max(next, 0), picture.pieceUnits.length - 1);
  }

  /** Return the piece above or below the middle of a piece. */
  function across(picture, piece, step) {
    const line = lineOf(picture, piece);
    const next = Math.min(Math.max(line + step, 0), picture.lineRow.length - 1);
    const middle = picture.pieceStart[piece] + picture.pieceUnits[piece] / 2;
    const share = (middle * UNIT_BYTES) / picture.lineBytes[line];
    const found = hit(picture, { x0: 0, x1: 1, y0: next, y1: next + 1 }, Math.min(share, 0.999999), 0.5);
    return found < 0 ? picture.lineFirst[next + 1] - 1 : found;
  }

  vramscope.raster = { parse, paint, linePixels, hit, lineOf, block, pieceAt, beside, across, rowSums, UNMAPPED };
})();
