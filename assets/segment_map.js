/**
 * Segment map: the canvas and its view. It takes clicks and keys, and keeps the selected block in sight. What it shows is painted
 * by map_raster.js and map_paint.js, said by map_words.js, framed by map_panel.js, and lies under the axes of map_axes.js.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const { raster, mapWords: words, mapPaint: paint, mapPanel: panel, mapAxes: axes } = vramscope;
  const LEAST_LINE_PX = 8;
  const MOST_LINE_PX = 22;

  let picture = null;
  let view = { x0: 0, x1: 1, y0: 0, y1: 1 };
  let fitted = true; // the view is our own choice, not the user's
  let byOwner = false;
  let tabular = false;
  let palette = null;
  let image = null;
  let pixels = null;
  let stale = true; // the pixels are older than the picture, the view or the colours
  let drawing = false;
  let selected = null; // an address
  let cursor = -1; // the piece that the keyboard is on
  let hovered = -1;
  let pointer = null; // the last event of a pointer that is still over the map
  let afterPaint = null; // told once the newest picture is on the canvas
  let asOf = ""; // the picture's time of day, once it is no longer fresh

  const element = (id) => document.getElementById(id);

  // ---- drawing

  /** Ask for a drawing with the next frame. */
  function draw(pixelsToo = true) {
    stale = stale || pixelsToo;
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(drawNow);
  }

  function told() {
    if (afterPaint) afterPaint();
    afterPaint = null;
  }

  function drawNow() {
    drawing = false;
    const box = axes.box();
    if (tabular) told();
    if (!picture || tabular) return;
    const canvas = element("map-canvas");
    const scale = window.devicePixelRatio || 1;
    const width = Math.round(box.width * scale);
    const height = Math.round(box.height * scale);
    if (width < 1 || height < 1) return;
    const context = canvas.getContext("2d");
    if (canvas.width !== Math.round(box.outerWidth * scale) || canvas.height !== Math.round(box.outerHeight * scale)) {
      canvas.width = Math.round(box.outerWidth * scale);
      canvas.height = Math.round(box.outerHeight * scale);
      stale = true;
    }
    if (!image || image.width !== width || image.height !== height) {
      image = context.createImageData(width, height);
      pixels = new Uint32Array(image.data.buffer);
      stale = true;
    }
    if (stale) {
      if (!palette) palette = paint.palette(picture, byOwner);
      raster.paint(picture, view, pixels, width, height, palette, byOwner);
      stale = false;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.putImageData(image, Math.round(box.left * scale), Math.round(box.top * scale));
    context.setTransform(scale, 0, 0, scale, 0, 0);
    paint.labels(context, box, picture, view);
    if (selected !== null) paint.outline(context, box, picture, view, raster.pieceAt(picture, selected), "--text", 2);
    if (cursor >= 0) paint.outline(context, box, picture, view, cursor, "--accent", 2);
    if (hovered >= 0) paint.outline(context, box, picture, view, hovered, "--text", 1);
    told();
  }

  // ---- the view

  /** Take the map's element as soon as it is there, and the axes when they have come. */
  function attach() {
    if (!element("map")) {
      setTimeout(attach, 50);
      return;
    }
    listen();
    axes.attach(() => picture && setView(view), moved, () => draw());
  }

  /** Follow the user to a part of the map; null: to all of it. */
  function moved(to) {
    if (to === null) {
      fit();
      return;
    }
    Object.assign(view, to);
    fitted = false;
    changedView();
  }

  function changedView() {
    summarize();
    draw();
  }

  /** Return the lines that fit when all, or as many as can be told apart, are in view. */
  function fittingLines() {
    const { height } = axes.box();
    const least = Math.floor(height / MOST_LINE_PX);
    return Math.max(least, Math.min(picture.lineRow.length, Math.floor(height / LEAST_LINE_PX)), 1);
  }

  /** Show all lines, or the first of them where there are too many. */
  function fit() {
    fitted = true;
    setView({ x0: 0, x1: 1, y0: 0, y1: fittingLines() });
  }

  function setView(wanted) {
    const lines = Math.max(picture.lineRow.length, fittingLines());
    const height = Math.min(wanted.y1 - wanted.y0, lines);
    const y0 = Math.min(Math.max(0, wanted.y0), lines - height);
    const width = Math.min(wanted.x1 - wanted.x0, 1);
    const x0 = Math.min(Math.max(0, wanted.x0), 1 - width);
    view = { x0, x1: x0 + width, y0, y1: y0 + height };
    changedView();
    axes.show(view, lines);
  }

  // ---- the words around the picture

  function summarize() {
    if (!picture) return;
    const { segments, blocks } = picture.header;
    const lines = picture.lineRow.length;
    const from = Math.floor(view.y0) + 1;
    const to = Math.min(lines, Math.ceil(view.y1));
    const as = asOf ? `as of ${asOf} · ` : "";
    panel.setText("map-summary", `${as}${words.count(segments, "segment")} · ${words.count(blocks, "block")}`);
    element("map-summary").title = element("map-summary").textContent; // it may be cut
    panel.setText("map-lines", to - from + 1 < lines ? `${from}–${to} of ${lines.toLocaleString("en")} lines` : "");
  }

  // ---- pointer and keys

  function pieceUnder(event) {
    const box = axes.box();
    if (!picture) return -1;
    const frame = element("map").getBoundingClientRect();
    const x = (event.clientX - frame.left - box.left) / box.width;
    const y = (event.clientY - frame.top - box.top) / box.height;
    return x < 0 || x > 1 || y < 0 || y > 1 ? -1 : raster.hit(picture, view, x, y);
  }

  function listen() {
    const host = element("map");
    let pressed = null;
    host.addEventListener("pointermove", (event) => {
      pointer = event;
      const piece = event.buttons ? -1 : pieceUnder(event);
      panel.showTip(picture, piece, event.clientX, event.clientY);
      if (piece !== hovered) {
        hovered = piece;
        draw(false);
      }
    }, true);
    host.addEventListener("pointerleave", () => {
      pointer = null;
      hovered = -1;
      panel.hideTip();
      draw(false);
    });
    host.addEventListener("pointerdown", (event) => (pressed = event), true);
    window.addEventListener("pointerup", (event) => {
      const moved = !pressed || Math.hypot(event.clientX - pressed.clientX, event.clientY - pressed.clientY) > 4;
      if (!moved && host.contains(pressed.target) && !pressed.target.closest(".modebar")) pick(pieceUnder(event));
      pressed = null;
    }, true);
    host.addEventListener("wheel", wheel, { passive: false });
    host.addEventListener("keydown", key);
    host.addEventListener("blur", () => {
      cursor = -1;
      panel.hideTip();
      draw(false);
    });
    new ResizeObserver(() => {
      axes.style();
      if (picture && fitted) fit();
      else draw();
    }).observe(host);
  }

  function wheel(event) {
    if (!picture) return;
    const box = axes.box();
    const frame = element("map").getBoundingClientRect();
    const at = (event.clientX - frame.left - box.left) / box.width;
    if (event.ctrlKey || event.metaKey) {
      const factor = Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006);
      const middle = view.x0 + at * (view.x1 - view.x0);
      setView({ ...view, x0: middle - (middle - view.x0) * factor, x1: middle + (view.x1 - middle) * factor });
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const step = ((event.deltaX || event.deltaY) / box.width) * (view.x1 - view.x0);
      setView({ ...view, x0: view.x0 + step, x1: view.x1 + step });
    } else {
      const height = view.y1 - view.y0;
      const step = Math.sign(event.deltaY) * Math.max(1, Math.round((Math.abs(event.deltaY) / box.height) * height));
      const end = picture.lineRow.length - height;
      if ((step < 0 && view.y0 <= 0) || (step > 0 && view.y0 >= end)) return; // at an end, the page scrolls
      setView({ ...view, y0: view.y0 + step, y1: view.y1 + step });
    }
    fitted = false;
    event.preventDefault();
  }

  function key(event) {
    if (!picture || !picture.pieceUnits.length) return;
    const moves = {
      ArrowLeft: () => raster.beside(picture, cursor, -1),
      ArrowRight: () => raster.beside(picture, cursor, 1),
      ArrowUp: () => raster.across(picture, cursor, -1),
      ArrowDown: () => raster.across(picture, cursor, 1),
    };
    if (event.key in moves) cursor = cursor < 0 ? firstInView() : moves[event.key]();
    else if (event.key === "Enter" && cursor >= 0) pick(cursor);
    else if (event.key === "Escape") clear();
    else if (event.key === "0") fit();
    else return;
    event.preventDefault();
    if (cursor >= 0 && event.key in moves) reveal(cursor);
  }

  function firstInView() {
    const selectedPiece = selected === null ? -1 : raster.pieceAt(picture, selected);
    if (selectedPiece >= 0) return selectedPiece;
    return picture.lineFirst[Math.min(Math.max(0, Math.ceil(view.y0)), picture.lineRow.length - 1)];
  }

  /** Bring a piece into view, and say what it is to those who see it and those who hear it. */
  function reveal(piece) {
    const line = raster.lineOf(picture, piece);
    const height = view.y1 - view.y0;
    if (line < view.y0 || line + 1 > view.y1) {
      const y0 = line < view.y0 ? line : line + 1 - height;
      setView({ ...view, y0, y1: y0 + height });
      fitted = false;
    }
    panel.setText("map-aloud", words.block(picture, piece));
    draw(false);
    const box = axes.box();
    const frame = element("map").getBoundingClientRect();
    const place = paint.pieceBox(box, picture, view, piece);
    const left = Math.min(Math.max(place.left, box.left), box.left + box.width);
    if (document.activeElement === element("map")) {
      panel.showTip(picture, piece, frame.left + left, frame.top + place.bottom - 8);
    }
  }

  function pick(piece) {
    if (piece < 0) return;
    const found = raster.block(picture, piece);
    if (found.state === raster.UNMAPPED) return;
    panel.setText("map-aloud", `selected: ${words.block(picture, piece)}`);
    vramscope.page.selectBlock(words.formatAddress(found.address));
  }

  function clear() {
    cursor = -1;
    panel.hideTip();
    panel.setText("map-aloud", "no block is selected");
    vramscope.page.selectBlock(null);
    draw(false);
  }

  // ---- what the page asks of the map

  /** Show a new picture; `painted` is called once its pixels are on the canvas. */
  function show(found, painted) {
    const other = !picture || picture.lineRow.length !== found.lineRow.length;
    // A cursor is a place in the old picture; keep it on the block at the same address.
    const at = cursor >= 0 ? raster.block(picture, cursor).address : null;
    picture = found;
    cursor = at === null ? -1 : raster.pieceAt(picture, at);
    afterPaint = painted;
    if (other && fitted) fit();
    hovered = pointer && !pointer.buttons ? pieceUnder(pointer) : -1;
    if (hovered >= 0) panel.showTip(picture, hovered, pointer.clientX, pointer.clientY);
    summarize();
    panel.showLegend(picture, byOwner);
    if (!element("map-aloud").textContent) panel.setText("map-aloud", element("map-summary").textContent);
    if (tabular) panel.showTable(picture);
    draw();
  }

  /** Say of which moment (Unix µs) the picture is when it is not fresh; null: it is. */
  function setAsOf(timeUs) {
    const text = timeUs === null ? "" : new Date(timeUs / 1000).toLocaleTimeString("en-GB");
    if (text === asOf) return;
    asOf = text;
    summarize();
  }

  /** Forget the picture: another device was chosen, or there is none. */
  function forget() {
    picture = null;
    fitted = true;
    cursor = hovered = -1;
    panel.hideTip();
    panel.freshTable();
    panel.setText("map-summary", "no map has arrived yet");
    const canvas = element("map-canvas");
    canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
  }

  /** Colour by "state" or "owner"; show the "map" or the "table". */
  function setOptions(colour, shown) {
    byOwner = colour === "owner";
    tabular = shown === "table";
    element("map").hidden = tabular;
    element("map-table").hidden = !tabular;
    palette = null;
    panel.freshTable();
    if (!picture) return;
    panel.showLegend(picture, byOwner);
    if (tabular) panel.showTable(picture);
    draw();
  }

  /** Outline the block at an address ("0x…" or null) and bring it into view. */
  function mark(address) {
    selected = address ? Number(address) : null;
    if (!picture) return;
    const piece = selected === null ? -1 : raster.pieceAt(picture, selected);
    if (piece >= 0) reveal(piece);
    draw(false);
  }

  /** Save what is in view as PNG, under a title; Plotly makes it, so it may have to come first. */
  function exportPng(title) {
    if (!picture || tabular) return;
    if (axes.plotted()) vramscope.png.save(element("map-canvas"), axes.plotted(), title, "vramscope-segment-map.png");
    else setTimeout(exportPng, 100, title);
  }

  function repaint() {
    palette = null;
    axes.style();
    draw();
  }

  vramscope.segmentMap = { attach, repaint, show, forget, setAsOf, setOptions, mark, exportPng };
})();
