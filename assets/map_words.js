/**
 * Map words: what a row, a block and a colour of the segment map are called. Pure: a picture in, text out.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const STATES = ["active", "pending free", "inactive", "unmapped"];
  const FLAGS = { small: 1, expandable: 2, private: 4, shortened: 8 };
  // unknown, parameter, gradient, optimizer state, activation: always in the legend, so that it does not jump with each step.
  const USUAL_OWNERS = [0, 1, 3, 4, 5];
  const NO_OWNER = 255;

  // A half goes to the even neighbour, as Python's does: 91.25 MiB must not be 91.2 in one line of the page and 91.3 in the next.
  const [oneDigit, twoDigits] = [1, 2].map((digits) => new Intl.NumberFormat("en",
    { minimumFractionDigits: digits, maximumFractionDigits: digits, useGrouping: false, roundingMode: "halfEven" }));

  /** Return bytes as text, as vramscope.units.format_bytes does. */
  function formatBytes(bytes) {
    for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
      if (bytes >= size) return `${(bytes / size < 10 ? twoDigits : oneDigit).format(bytes / size)} ${unit}`;
    }
    return `${bytes} B`;
  }

  /** Return a number of things: "1 block", "2,000 blocks". */
  const count = (number, thing) => `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;

  const formatAddress = (address) => `0x${address.toString(16)}`;

  /** Return "s7" for a stream; pointers, which are long, get a letter in the order of their numbers. */
  function streamLabel(picture, index) {
    const name = picture.header.streams[index];
    return name.length < 5 ? `s${name}` : `s·${String.fromCharCode(65 + (index % 26))}`;
  }

  /** Return the marks at a row's label: stream, private pool, expandable, small pool. */
  function rowMarks(picture, row) {
    const flags = picture.rowFlags[row];
    const marks = [];
    if (picture.header.streams[picture.rowStream[row]] !== "0") marks.push(streamLabel(picture, picture.rowStream[row]));
    if (flags & FLAGS.private) marks.push("P");
    if (flags & FLAGS.expandable) marks.push("E");
    if (flags & FLAGS.small) marks.push("S");
    return marks.join(" ");
  }

  /** Return what a row is, by column: stream, pool, kind. */
  function rowFacts(picture, row) {
    const flags = picture.rowFlags[row];
    const own = flags & FLAGS.private ? ` of private pool ${picture.header.pools[picture.rowPool[row]]}` : "";
    return {
      stream: picture.header.streams[picture.rowStream[row]],
      pool: `${flags & FLAGS.small ? "small" : "large"} pool${own}`,
      kind: flags & FLAGS.expandable ? "expandable" : "segment",
    };
  }

  function rowText(picture, row) {
    const { stream, pool, kind } = rowFacts(picture, row);
    return `stream ${stream} · ${pool}${kind === "expandable" ? ", expandable" : ""}`;
  }

  /** Return the mapped bytes of a row. */
  function rowBytes(picture, row) {
    const [active, pending, inactive] = vramscope.raster.rowSums(picture)[row].bytes;
    return active + pending + inactive;
  }

  const ownerText = (picture, owner) => (owner === NO_OWNER ? "" : picture.header.categories[owner]);

  /** Return one sentence about the block of a piece. */
  function block(picture, piece) {
    const found = vramscope.raster.block(picture, piece);
    const owner = ownerText(picture, found.owner);
    const place = `${formatBytes(found.bytes)} at ${formatAddress(found.address)}`;
    return `${STATES[found.state]} block of ${place}${owner && `, owner ${owner}`}, ${rowText(picture, found.row)}`;
  }

  /** Return the tooltip's lines about a block as raster.block gives it; the owner, if it has one, is the last. */
  function tip(picture, found) {
    const size = `${formatBytes(found.bytes)} · ${STATES[found.state]}`;
    const lines = [size, formatAddress(found.address), rowText(picture, found.row), ownerText(picture, found.owner)];
    return lines.filter(Boolean);
  }

  /** Return the legend as [colour's class, text], owners only where one has a block. */
  function legend(picture, byOwner) {
    const present = new Set(byOwner ? [...USUAL_OWNERS, ...picture.pieceOwner] : []);
    const owners = picture.header.categories.map((name, code) => [`owner-${code}`, name, code]);
    const entries = byOwner
      ? owners.filter(([, , code]) => present.has(code)).map(([colour, name]) => [colour, name])
      : [["active", "active"], ["pending", "pending free"]];
    entries.push(byOwner ? ["cached", "cached and free"] : ["inactive", "inactive: cached and free"]);
    const shortened = picture.rowFlags.some((flags) => flags & FLAGS.shortened);
    entries.push(["unmapped", shortened ? "unmapped (long gaps shortened)" : "unmapped"]);
    return entries;
  }

  /** Return what the marks that occur at rows mean. */
  function marks(picture) {
    const has = (flag) => picture.rowFlags.some((flags) => flags & flag);
    return [
      picture.header.streams.some((name) => name !== "0") && "s stream",
      has(FLAGS.private) && "P private pool",
      has(FLAGS.expandable) && "E expandable",
      has(FLAGS.small) && "S small pool",
    ]
      .filter(Boolean)
      .join(" · ");
  }

  vramscope.mapWords = { formatBytes, formatAddress, count, rowMarks, rowFacts, rowBytes, block, tip, legend, marks, NO_OWNER };
})();
