/**
 * Map paint: what lies over the raster of the segment map: labels and outlines; and the colours the raster is made of.
 * `box` is Plotly's plotting area within the canvas, in CSS pixels; `view` is what of the picture it shows.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const STATE_COLOURS = ["--s-active", "--s-pending", "--s-inactive", "--s-unmapped"];
  const INACTIVE = 2;
  const LABEL_PX = 12;
  const WIDE_LABEL_PX = 100; // below this, only the part of an address in which segments differ fits: they begin at full MiB

  /** Return the pixels for raster.paint: owner codes from 0, states from 256; coloured by owner, free memory steps back. */
  function palette(picture, byOwner) {
    const theme = vramscope.theme;
    const found = { fill: new Uint32Array(260), edge: new Uint32Array(260) };
    for (let code = 0; code < picture.header.categories.length; code++) {
      found.fill[code] = found.edge[code] = theme.pixel(`--o-${code}`);
    }
    STATE_COLOURS.forEach((name, state) => {
      const colour = byOwner && state === INACTIVE ? "--s-free" : name;
      found.fill[256 + state] = theme.pixel(colour);
      found.edge[256 + state] = theme.pixel(`${colour}-edge`);
    });
    return found;
  }

  /** Write each line's address, marks and size beside it, as far as there is room. */
  function labels(context, box, picture, view) {
    const { theme, mapWords: words } = vramscope;
    const muted = theme.colour("--muted");
    const text = theme.colour("--text");
    context.font = "11px ui-monospace, 'DejaVu Sans Mono', monospace";
    context.textBaseline = "middle";
    const linePx = box.height / (view.y1 - view.y0);
    const end = Math.min(picture.lineRow.length, Math.ceil(view.y1));
    let free = -Infinity;
    for (let line = Math.max(0, Math.floor(view.y0)); line < end; line++) {
      const y = box.top + (line + 0.46 - view.y0) * linePx;
      if (y < box.top || y > box.top + box.height || y - free < LABEL_PX) continue;
      free = y;
      const row = picture.lineRow[line];
      const head = line === 0 || picture.lineRow[line - 1] !== row;
      context.textAlign = "right";
      context.fillStyle = muted;
      const address = words.formatAddress(picture.lineAddress[line]);
      context.fillText(box.left > WIDE_LABEL_PX ? address : `${address.slice(2, 9)}…`, box.left - 8, y);
      context.textAlign = "left";
      if (head && box.left > WIDE_LABEL_PX) {
        context.fillStyle = text;
        context.fillText(words.rowMarks(picture, row), 10, y);
      }
      context.fillStyle = head ? text : muted;
      context.fillText(head ? words.formatBytes(words.rowBytes(picture, row)) : "↳", box.left + box.width + 8, y);
    }
  }

  /** Draw a frame around every piece of a block. */
  function outline(context, box, picture, view, piece, colour, width) {
    if (piece < 0 || piece >= picture.pieceUnits.length) return;
    const found = vramscope.raster.block(picture, piece);
    context.save();
    context.beginPath();
    context.rect(box.left - 2, box.top - 2, box.width + 4, box.height + 4);
    context.clip();
    context.strokeStyle = vramscope.theme.colour(colour);
    context.lineWidth = width;
    for (let i = found.first; i <= found.last; i++) {
      const { left, right, top, bottom } = pieceBox(box, picture, view, i);
      context.strokeRect(left - width / 2, top - width / 2, Math.max(right - left, 2) + width, bottom - top + width);
    }
    context.restore();
  }

  /** Return where a piece lies on the canvas, in CSS pixels. */
  function pieceBox(box, picture, view, piece) {
    const ratio = window.devicePixelRatio || 1;
    const line = vramscope.raster.lineOf(picture, piece);
    const units = picture.lineBytes[line] / 512;
    const place = (unit) => box.left + ((unit / units - view.x0) / (view.x1 - view.x0)) * box.width;
    const [top, bottom] = vramscope.raster.linePixels(view, line, Math.round(box.height * ratio));
    return {
      left: place(picture.pieceStart[piece]),
      right: place(picture.pieceStart[piece] + picture.pieceUnits[piece]),
      top: box.top + top / ratio,
      bottom: box.top + bottom / ratio,
    };
  }

  vramscope.mapPaint = { palette, labels, outline, pieceBox };
})();
