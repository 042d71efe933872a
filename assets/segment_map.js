/**
 * Segment map: the canvas under Plotly's axes. It follows their range, shows what is under the pointer, takes clicks and keys,
 * keeps the selected block in sight, and exports the picture. Painting is map_raster.js's; fetching is live.js's.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const raster = vramscope.raster;
  const STATES = ["active", "pending free", "inactive", "unmapped"];
  const STATE_COLOURS = ["--s-active", "--s-pending", "--s-inactive", "--s-unmapped"];
  const LEAST_LINE_PX = 8;
  const MOST_LINE_PX = 22;
  const LABEL_PX = 12;
  const FLAGS = { small: 1, expandable: 2, private: 4, shortened: 8 };
  // unknown, parameter, gradient, optimizer state, activation: always in the legend, so that it does not jump with each step.
  const USUAL_OWNERS = [0, 1, 3, 4, 5];
  const NAME_AFTER_MS = 120;
  const TABLE_ROWS = 200;
  const TABLE_EVERY_MS = 1000;

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
  let plotted = null; // Plotly's div, once it is there
  let afterPaint = [];
  let asOf = ""; // the picture's time of day, once it is no longer fresh
  let tableAt = 0;

  const element = (id) => document.getElementById(id);
  const ratio = () => window.devicePixelRatio || 1;

  /** Return bytes as text, as vramscope.units.format_bytes does. */
  function formatBytes(bytes) {
    for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
      if (bytes >= size) return `${(bytes / size).toFixed(bytes / size < 10 ? 2 : 1)} ${unit}`;
    }
    return `${bytes} B`;
  }

  const formatAddress = (address) => `0x${address.toString(16)}`;

  /** Return "s7" for a stream; pointers, which are long, get a letter in the order of their numbers. */
  function streamLabel(index) {
    const name = picture.header.streams[index];
    return name.length < 5 ? `s${name}` : `s·${String.fromCharCode(65 + (index % 26))}`;
  }

  function rowMarks(row) {
    const flags = picture.rowFlags[row];
    const marks = [];
    if (picture.header.streams[picture.rowStream[row]] !== "0") marks.push(streamLabel(picture.rowStream[row]));
    if (flags & FLAGS.private) marks.push("P");
    if (flags & FLAGS.expandable) marks.push("E");
    if (flags & FLAGS.small) marks.push("S");
    return marks.join(" ");
  }

  function rowText(row) {
    const flags = picture.rowFlags[row];
    const pool = `${flags & FLAGS.small ? "small" : "large"} pool`;
    const own = flags & FLAGS.private ? ` of private pool ${picture.header.pools[picture.rowPool[row]]}` : "";
    const kind = flags & FLAGS.expandable ? ", expandable" : "";
    return `stream ${picture.header.streams[picture.rowStream[row]]} · ${pool}${own}${kind}`;
  }

  // ---- drawing

  function readPalette() {
    const theme = vramscope.theme;
    palette = { fill: new Uint32Array(260), edge: new Uint32Array(260) };
    const owners = picture ? picture.header.categories.length : 0;
    for (let code = 0; code < owners; code++) {
      palette.fill[code] = theme.pixel(`--o-${code}`);
      palette.edge[code] = palette.fill[code];
    }
    STATE_COLOURS.forEach((name, state) => {
      const free = byOwner && state === 2;
      palette.fill[256 + state] = theme.pixel(free ? "--s-free" : name);
      palette.edge[256 + state] = theme.pixel(free ? "--s-free-edge" : `${name}-edge`);
    });
  }

  /** Ask for a drawing with the next frame. */
  function draw(pixelsToo = true) {
    stale = stale || pixelsToo;
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(drawNow);
  }

  function drawNow() {
    drawing = false;
    const box = plotBox();
    if (!picture || !box || tabular) return;
    const canvas = element("map-canvas");
    const scale = ratio();
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
      if (!palette) readPalette();
      raster.paint(picture, view, pixels, width, height, palette, byOwner);
      stale = false;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.putImageData(image, Math.round(box.left * scale), Math.round(box.top * scale));
    context.setTransform(scale, 0, 0, scale, 0, 0);
    drawLabels(context, box);
    if (selected !== null) outline(context, box, raster.pieceAt(picture, selected), "--text", 2);
    if (cursor >= 0) outline(context, box, cursor, "--accent", 2);
    if (hovered >= 0) outline(context, box, hovered, "--text", 1);
    const callbacks = afterPaint;
    afterPaint = [];
    for (const callback of callbacks) callback();
  }

  function drawLabels(context, box) {
    const theme = vramscope.theme;
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
      const address = formatAddress(picture.lineAddress[line]);
      context.fillText(box.left > 100 ? address : `…${address.slice(-6)}`, box.left - 8, y);
      context.textAlign = "left";
      if (head && box.left > 100) {
        context.fillStyle = text;
        context.fillText(rowMarks(row), 10, y);
      }
      context.fillStyle = head ? text : muted;
      context.fillText(head ? formatBytes(rowBytes(row)) : "↳", box.left + box.width + 8, y);
    }
  }

  function rowBytes(row) {
    if (!picture.sums) picture.sums = raster.rowSums(picture);
    const [active, pending, inactive] = picture.sums[row].bytes;
    return active + pending + inactive;
  }

  function outline(context, box, piece, colour, width) {
    if (piece < 0 || piece >= picture.pieceUnits.length) return;
    const found = raster.block(picture, piece);
    context.save();
    context.beginPath();
    context.rect(box.left - 2, box.top - 2, box.width + 4, box.height + 4);
    context.clip();
    context.strokeStyle = vramscope.theme.colour(colour);
    context.lineWidth = width;
    for (let i = found.first; i <= found.last; i++) {
      const { left, right, top, bottom } = pieceBox(box, i);
      context.strokeRect(left - width / 2, top - width / 2, Math.max(right - left, 2) + width, bottom - top + width);
    }
    context.restore();
  }

  function pieceBox(box, piece) {
    const line = raster.lineOf(picture, piece);
    const units = picture.lineBytes[line] / 512;
    const place = (unit) => box.left + ((unit / units - view.x0) / (view.x1 - view.x0)) * box.width;
    const [top, bottom] = raster.linePixels(view, line, Math.round(box.height * ratio()));
    return {
      left: place(picture.pieceStart[piece]),
      right: place(picture.pieceStart[piece] + picture.pieceUnits[piece]),
      top: box.top + top / ratio(),
      bottom: box.top + bottom / ratio(),
    };
  }

  // ---- Plotly's axes

  function plotBox() {
    const layout = plotted && plotted._fullLayout;
    if (!layout || !layout._size) return null;
    const { l, t, w, h } = layout._size;
    return { left: l, top: t, width: w, height: h, outerWidth: layout.width, outerHeight: layout.height };
  }

  /** Take Plotly's div as soon as it is drawn. */
  function attach() {
    const found = document.querySelector("#map-graph .js-plotly-plot");
    if (!found || !found.on || !found._fullLayout || !found._fullLayout._size) {
      setTimeout(attach, 50);
      return;
    }
    plotted = found;
    style();
    plotted.on("plotly_relayouting", (event) => follow(event));
    plotted.on("plotly_relayout", (event) => follow(event));
    plotted.on("plotly_afterplot", () => draw());
    listen();
    if (picture) fit();
  }

  /** Where fingers are the pointer, dragging must scroll the page; where the page is narrow, the labels must be short. */
  function style() {
    const coarse = window.matchMedia("(pointer: coarse)").matches;
    const small = element("map").clientWidth < 640;
    const margin = small ? { l: 66, r: 72 } : { l: 148, r: 76 };
    window.Plotly.relayout(plotted, {
      dragmode: coarse ? false : "pan",
      "font.color": vramscope.theme.colour("--muted"),
      "margin.l": margin.l,
      "margin.r": margin.r,
    });
  }

  /** Follow a change of the axes by the user. */
  function follow(event) {
    const at = (axis, end) => event[`${axis}.range[${end}]`] ?? (event[`${axis}.range`] || [])[end];
    const [x0, x1, bottom, top] = [at("xaxis", 0), at("xaxis", 1), at("yaxis", 0), at("yaxis", 1)];
    if (x0 === undefined && bottom === undefined) return;
    if (bottom === 1 && top === 0) {
      // Plotly's "reset" goes to the range the layout began with; for us that means: show it all.
      fit();
      return;
    }
    if (x0 !== undefined) Object.assign(view, { x0, x1 });
    if (bottom !== undefined) Object.assign(view, { y0: top, y1: bottom });
    fitted = fitted && event.ours === true;
    changedView();
  }

  function changedView() {
    summarize();
    draw();
  }

  /** Return the lines that fit when all, or as many as can be told apart, are in view. */
  function fittingLines() {
    const box = plotBox();
    const height = box ? box.height : 400;
    const least = Math.floor(height / MOST_LINE_PX);
    return Math.max(least, Math.min(picture.lineRow.length, Math.floor(height / LEAST_LINE_PX)), 1);
  }

  /** Show all lines, or the first of them where there are too many. */
  function fit() {
    fitted = true;
    setView({ x0: 0, x1: 1, y0: 0, y1: fittingLines() });
  }

  let relayouting = false;

  function setView(wanted) {
    const lines = Math.max(picture.lineRow.length, fittingLines());
    const height = Math.min(wanted.y1 - wanted.y0, lines);
    const y0 = Math.min(Math.max(0, wanted.y0), lines - height);
    const width = Math.min(wanted.x1 - wanted.x0, 1);
    const x0 = Math.min(Math.max(0, wanted.x0), 1 - width);
    view = { x0, x1: x0 + width, y0, y1: y0 + height };
    changedView();
    if (relayouting || !plotted) return;
    relayouting = true;
    requestAnimationFrame(() => {
      relayouting = false;
      const limit = Math.max(picture.lineRow.length, fittingLines());
      window.Plotly.update(plotted, {}, {
        "xaxis.range": [view.x0, view.x1],
        "yaxis.range": [view.y1, view.y0],
        "yaxis.minallowed": 0,
        "yaxis.maxallowed": limit,
      });
    });
  }

  // ---- the words around the picture

  function summarize() {
    if (!picture) return;
    const { segments, blocks } = picture.header;
    const lines = picture.lineRow.length;
    const from = Math.floor(view.y0) + 1;
    const to = Math.min(lines, Math.ceil(view.y1));
    const as = asOf ? `as of ${asOf} · ` : "";
    setText("map-summary", `${as}${segments.toLocaleString("en")} segments · ${blocks.toLocaleString("en")} blocks`);
    setText("map-lines", to - from + 1 < lines ? `${from}–${to} of ${lines.toLocaleString("en")} lines` : "");
  }

  function setText(id, text) {
    const target = element(id);
    if (target.textContent !== text) target.textContent = text;
  }

  let legendKey = "";

  /** Show what the colours mean; owners only where one has a block. */
  function showLegend() {
    const present = new Set(byOwner ? [...USUAL_OWNERS, ...picture.pieceOwner] : []);
    const names = picture.header.categories;
    const entries = byOwner
      ? names.map((name, code) => [`owner-${code}`, name, present.has(code)]).filter((entry) => entry[2])
      : [["active", "active"], ["pending", "pending free"]];
    entries.push(byOwner ? ["cached", "cached and free"] : ["inactive", "inactive: cached and free"]);
    const shortened = picture.rowFlags.some((flags) => flags & FLAGS.shortened);
    entries.push(["unmapped", shortened ? "unmapped (long gaps shortened)" : "unmapped"]);
    const marks = [];
    if (picture.header.streams.some((name) => name !== "0")) marks.push("s stream");
    if (picture.rowFlags.some((flags) => flags & FLAGS.private)) marks.push("P private pool");
    if (picture.rowFlags.some((flags) => flags & FLAGS.expandable)) marks.push("E expandable");
    if (picture.rowFlags.some((flags) => flags & FLAGS.small)) marks.push("S small pool");
    const key = JSON.stringify([entries, marks]);
    if (key === legendKey) return;
    legendKey = key;
    const spans = entries.map(([colour, name]) => {
      const span = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.className = `swatch fill ${colour}`;
      span.append(swatch, name);
      return span;
    });
    const last = document.createElement("span");
    last.className = "legend-marks";
    last.textContent = marks.join(" · ");
    element("map-legend").replaceChildren(...spans, last);
  }

  function blockText(piece) {
    const found = raster.block(picture, piece);
    const state = STATES[found.state];
    const owner = found.owner === 255 ? "" : `, owner ${picture.header.categories[found.owner]}`;
    return `${state} block of ${formatBytes(found.bytes)} at ${formatAddress(found.address)}${owner}, ${rowText(found.row)}`;
  }

  // ---- the tooltip

  let naming = null;

  function showTip(piece, x, y) {
    const tip = element("map-tip");
    if (piece < 0) {
      tip.hidden = true;
      clearTimeout(naming);
      return;
    }
    const found = raster.block(picture, piece);
    const lines = [
      `${formatBytes(found.bytes)} · ${STATES[found.state]}`,
      formatAddress(found.address),
      rowText(found.row),
      found.owner === 255 ? "" : picture.header.categories[found.owner],
    ];
    const rows = lines.filter(Boolean).map((text, n) => {
      const row = document.createElement(n === 0 ? "b" : "span");
      row.textContent = text;
      return row;
    });
    tip.replaceChildren(...rows);
    tip.hidden = false;
    const wide = tip.offsetWidth;
    tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - wide - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > window.innerHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
    clearTimeout(naming);
    if (found.owner !== 255) naming = setTimeout(() => nameTip(found.address, rows[rows.length - 1]), NAME_AFTER_MS);
  }

  /** Add the tensor's name, which the frame does not carry, once the pointer rests. */
  async function nameTip(address, row) {
    const known = await vramscope.live.ask("live/block.json", { address });
    if (known && known.name && row.isConnected) row.textContent = `${known.owner} · ${known.name} ${known.shape || ""}`;
  }

  // ---- pointer and keys

  function pieceUnder(event) {
    const box = plotBox();
    if (!picture || !box) return -1;
    const frame = plotted.getBoundingClientRect();
    const x = (event.clientX - frame.left - box.left) / box.width;
    const y = (event.clientY - frame.top - box.top) / box.height;
    return x < 0 || x > 1 || y < 0 || y > 1 ? -1 : raster.hit(picture, view, x, y);
  }

  function listen() {
    const host = element("map");
    let pressed = null;
    host.addEventListener("pointermove", (event) => {
      const piece = event.buttons ? -1 : pieceUnder(event);
      showTip(piece, event.clientX, event.clientY);
      if (piece !== hovered) {
        hovered = piece;
        draw(false);
      }
    }, true);
    host.addEventListener("pointerleave", () => {
      hovered = -1;
      showTip(-1);
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
      showTip(-1);
      draw(false);
    });
    new ResizeObserver(() => {
      if (picture && fitted) fit();
      else draw();
    }).observe(host);
  }

  function wheel(event) {
    if (!picture) return;
    const box = plotBox();
    const frame = plotted.getBoundingClientRect();
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
    const moves = { ArrowLeft: () => beside(-1), ArrowRight: () => beside(1), ArrowUp: () => across(-1), ArrowDown: () => across(1) };
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

  function beside(step) {
    const found = raster.block(picture, cursor);
    const next = step < 0 ? found.first - 1 : found.last + 1;
    return Math.min(Math.max(next, 0), picture.pieceUnits.length - 1);
  }

  /** Return the piece above or below the cursor's middle. */
  function across(step) {
    const line = raster.lineOf(picture, cursor);
    const next = Math.min(Math.max(line + step, 0), picture.lineRow.length - 1);
    const middle = picture.pieceStart[cursor] + picture.pieceUnits[cursor] / 2;
    const share = (middle * 512) / picture.lineBytes[line];
    const found = raster.hit(picture, { x0: 0, x1: 1, y0: next, y1: next + 1 }, Math.min(share, 0.999999), 0.5);
    return found < 0 ? picture.lineFirst[next + 1] - 1 : found;
  }

  /** Bring a piece into view, and say what it is to those who see it and those who hear it. */
  function reveal(piece) {
    const line = raster.lineOf(picture, piece);
    const height = view.y1 - view.y0;
    if (line < view.y0) setView({ ...view, y0: line, y1: line + height });
    else if (line + 1 > view.y1) setView({ ...view, y0: line + 1 - height, y1: line + 1 });
    setText("map-aloud", blockText(piece));
    draw(false);
    const box = plotBox();
    const frame = plotted.getBoundingClientRect();
    const place = pieceBox(box, piece);
    if (document.activeElement === element("map")) {
      showTip(piece, frame.left + Math.min(Math.max(place.left, box.left), box.left + box.width), frame.top + place.bottom - 8);
    }
  }

  function pick(piece) {
    if (piece < 0) return;
    const found = raster.block(picture, piece);
    if (found.state === raster.UNMAPPED) return;
    setText("map-aloud", `selected: ${blockText(piece)}`);
    vramscope.live.selectBlock(formatAddress(found.address));
  }

  function clear() {
    cursor = -1;
    showTip(-1);
    vramscope.live.selectBlock(null);
    draw(false);
  }

  // ---- the table view

  const TABLE_HEAD = ["Address", "Size", "Active", "Pending free", "Inactive", "Unmapped", "Stream", "Pool", "Kind"];

  /** Show the rows as a table, at most once a second, so that it can be read and copied. */
  function showTable() {
    if (!tabular || !picture || performance.now() - tableAt < TABLE_EVERY_MS) return;
    tableAt = performance.now();
    if (!picture.sums) picture.sums = raster.rowSums(picture);
    const table = document.createElement("table");
    const cells = (names, tag) => {
      const row = document.createElement("tr");
      for (const name of names) {
        const cell = document.createElement(tag);
        cell.textContent = name;
        row.append(cell);
      }
      return row;
    };
    table.createTHead().append(cells(TABLE_HEAD, "th"));
    const body = table.createTBody();
    picture.sums.slice(0, TABLE_ROWS).forEach((row, n) => {
      const flags = picture.rowFlags[n];
      const [stream, rest] = rowText(n).split(" · ");
      body.append(
        cells(
          [
            formatAddress(row.address),
            formatBytes(rowBytes(n)),
            ...row.bytes.map(formatBytes),
            stream.replace("stream ", ""),
            rest.replace(", expandable", ""),
            flags & FLAGS.expandable ? "expandable" : "segment",
          ],
          "td",
        ),
      );
    });
    const left = picture.sums.length - TABLE_ROWS;
    table.createCaption().textContent = left > 0 ? `the first ${TABLE_ROWS} of ${picture.sums.length} rows` : "all rows";
    const host = element("map-table");
    const scrolled = host.scrollTop;
    host.replaceChildren(table);
    host.scrollTop = scrolled;
  }

  // ---- what the page asks of the map

  /** Show a new picture; `painted` is called once its pixels are on the canvas. */
  function show(found, painted) {
    const other = !picture || picture.lineRow.length !== found.lineRow.length;
    // A cursor is a place in the old picture; keep it on the block at the same address.
    const at = cursor >= 0 ? raster.block(picture, cursor).address : null;
    picture = found;
    cursor = at === null ? -1 : raster.pieceAt(picture, at);
    hovered = -1;
    if (!palette) readPalette();
    if (painted) afterPaint.push(painted);
    if (plotted && other && fitted) fit();
    summarize();
    showLegend();
    if (!element("map-aloud").textContent) setText("map-aloud", element("map-summary").textContent);
    showTable();
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
    showTip(-1);
    setText("map-summary", "no map has arrived yet");
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
    tableAt = 0;
    if (!picture) return;
    showLegend();
    showTable();
    draw();
  }

  /** Outline the block at an address ("0x…" or null) and bring it into view. */
  function mark(address) {
    selected = address ? Number(address) : null;
    if (!picture || !plotted) return;
    const piece = selected === null ? -1 : raster.pieceAt(picture, selected);
    if (piece >= 0) reveal(piece);
    draw(false);
  }

  /** Save what is in view as PNG: Plotly's axes with the canvas's picture behind them. */
  async function exportPng(title) {
    if (!picture || !plotted) return;
    const canvas = element("map-canvas");
    const sheet = document.createElement("canvas");
    sheet.width = canvas.width;
    sheet.height = canvas.height;
    const context = sheet.getContext("2d");
    context.fillStyle = vramscope.theme.colour("--panel");
    context.fillRect(0, 0, sheet.width, sheet.height);
    context.drawImage(canvas, 0, 0);
    const { width, height, margin, xaxis, yaxis } = plotted._fullLayout;
    const { l, r, t, b } = margin;
    const paper = { w: width - l - r, h: height - t - b };
    const figure = {
      data: [],
      layout: {
        width,
        height: height + 40,
        margin: { l, r, t: t + 40, b },
        paper_bgcolor: vramscope.theme.colour("--panel"),
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: vramscope.theme.colour("--text"), size: 11 },
        title: { text: vramscope.timeline.escape(title), x: 0.01, font: { size: 13 } },
        xaxis: { range: xaxis.range.slice(), tickformat: ".0%", showgrid: false, zeroline: false },
        yaxis: { range: yaxis.range.slice(), showticklabels: false, showgrid: false, zeroline: false },
        images: [
          {
            source: sheet.toDataURL("image/png"),
            xref: "paper",
            yref: "paper",
            x: -l / paper.w,
            y: 1 + t / paper.h,
            sizex: width / paper.w,
            sizey: height / paper.h,
            sizing: "stretch",
            layer: "below",
          },
        ],
      },
    };
    const url = await window.Plotly.toImage(figure, { format: "png", width, height: height + 40, scale: 2 });
    const link = document.createElement("a");
    link.href = url;
    link.download = "vramscope-segment-map.png";
    link.click();
  }

  function repaint() {
    palette = null;
    if (plotted) style();
    draw();
  }

  vramscope.segmentMap = { attach, repaint, show, forget, setAsOf, setOptions, mark, exportPng, formatBytes };
})();
