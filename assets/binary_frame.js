/**
 * Binary frame: reads what dashboard/figures/frame.py packs, a JSON header and typed columns behind a magic. Pure.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});

  /** Return the header of a frame, and what takes its columns one after the other; throws where the magic is another. */
  function open(buffer, magic, name) {
    const head = new DataView(buffer);
    if (buffer.byteLength < 8 || head.getUint32(0) !== magic) throw new Error(`not a ${name}`);
    const headerBytes = head.getUint32(4, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, headerBytes)));
    let offset = 8 + headerBytes;
    const take = (Type, count) => {
      const found = new Type(buffer, offset, count);
      offset += found.byteLength;
      return found;
    };
    return { header, take };
  }

  vramscope.binaryFrame = { open };
})();
