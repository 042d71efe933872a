/**
 * Map panel: what surrounds the segment map: its legend, tooltip, table and export.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const NAME_AFTER_MS = 120;
  const TABLE_ROWS = 200;
  const TABLE_EVERY_MS = 1000;
  const TABLE_HEAD = ["Address", "Size", "Active", "Pending free", "Inactive", "Unmapped", "Stream", "Pool", "Kind"];

  let naming = null;
  let tipText = ""; // what the tooltip says before the name is known
  let legendKey = "";
  let tableAt = -Infinity;

  const element = (id) => document.getElementById(id);

  /** Return an element with a text; names come from jobs, so they are never read as HTML. */
  function textual(tag, text) {
    const found = document.createElement(tag);
    found.textContent = text;
    return found;
  }

  /** Set an element's text where it is another. */
  function setText(id, text) {
    const target = element(id);
    if (target.textContent !== text) target.textContent = text;
  }

  /** Show what the colours and the marks mean. */
  function showLegend(picture, byOwner) {
    const entries = vramscope.mapWords.legend(picture, byOwner);
    const marks = vramscope.mapWords.marks(picture);
    const key = JSON.stringify([entries, marks]);
    if (key === legendKey) return;
    legendKey = key;
    const spans = entries.map(([colour, name]) => {
      const span = textual("span", name);
      const swatch = document.createElement("i");
      swatch.className = `swatch fill ${colour}`;
      span.prepend(swatch);
      return span;
    });
    element("map-legend").replaceChildren(...spans, textual("span", marks));
  }

  /** Show what a piece is, near a point; -1 hides the tooltip. */
  function showTip(picture, piece, x, y) {
    if (piece < 0) {
      hideTip();
      return;
    }
    const tip = element("map-tip");
    const found = vramscope.raster.block(picture, piece);
    const lines = vramscope.mapWords.tip(picture, found);
    const same = !tip.hidden && lines.join("\n") === tipText;
    if (!same) fillTip(tip, found, lines);
    tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > window.innerHeight ? y - tip.offsetHeight - 10 : y + 18}px`;
  }

  function fillTip(tip, found, lines) {
    tipText = lines.join("\n");
    tip.replaceChildren(...lines.map((text, n) => textual(n === 0 ? "b" : "span", text)));
    tip.hidden = false;
    clearTimeout(naming);
    if (found.owner === vramscope.mapWords.NO_OWNER) return;
    naming = setTimeout(nameTip, NAME_AFTER_MS, found.address, tip.lastChild);
  }

  function hideTip() {
    element("map-tip").hidden = true;
    clearTimeout(naming);
  }

  /** Add the tensor's name, which the frame does not carry, once the pointer rests. */
  async function nameTip(address, row) {
    const known = await vramscope.page.describeBlock(address);
    if (known && known.name && row.isConnected) row.textContent = `${known.owner} · ${known.name} ${known.shape || ""}`;
  }

  function tableRow(tag, texts) {
    const row = document.createElement("tr");
    row.append(...texts.map((text) => textual(tag, text)));
    return row;
  }

  /** Show the rows as a table, at most once a second, so that it can be read and copied. */
  function showTable(picture) {
    if (performance.now() - tableAt < TABLE_EVERY_MS) return;
    tableAt = performance.now();
    const { formatAddress, formatBytes, rowBytes, rowFacts } = vramscope.mapWords;
    const sums = vramscope.raster.rowSums(picture);
    const table = document.createElement("table");
    table.createTHead().append(tableRow("th", TABLE_HEAD));
    const body = table.createTBody();
    sums.slice(0, TABLE_ROWS).forEach((row, n) => {
      const { stream, pool, kind } = rowFacts(picture, n);
      const sizes = [rowBytes(picture, n), ...row.bytes].map(formatBytes);
      body.append(tableRow("td", [formatAddress(row.address), ...sizes, stream, pool, kind]));
    });
    const all = sums.length <= TABLE_ROWS;
    table.createCaption().textContent = all ? "all rows" : `the first ${TABLE_ROWS} of ${sums.length} rows`;
    const host = element("map-table");
    const scrolled = host.scrollTop;
    host.replaceChildren(table);
    host.scrollTop = scrolled;
  }

  /** Let the next table be shown at once: something else was chosen. */
  function freshTable() {
    tableAt = -Infinity;
  }

  vramscope.mapPanel = { setText, showLegend, showTip, hideTip, showTable, freshTable };
})();
