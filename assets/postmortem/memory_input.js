/**
 * Memory input: pointer, wheel and keys on the timeline: they move and zoom it, tell about what is under them, and pick.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});
  const CLICK_PX = 4;
  const NAME_AFTER_MS = 120;

  let naming = null;

  const element = (id) => document.getElementById(id);
  const timeline = () => vramscope.memoryTimeline;

  function attach() {
    const host = element("memory");
    let pressed = null;
    host.addEventListener("pointermove", (event) => (event.buttons ? leave() : tell(event)), true);
    host.addEventListener("pointerleave", leave);
    host.addEventListener("pointerdown", (event) => (pressed = event), true);
    window.addEventListener("pointerup", (event) => {
      const moved = !pressed || Math.hypot(event.clientX - pressed.clientX, event.clientY - pressed.clientY) > CLICK_PX;
      if (!moved && host.contains(pressed.target) && !pressed.target.closest(".modebar")) pick(event);
      pressed = null;
    }, true);
    host.addEventListener("wheel", wheel, { passive: false });
    host.addEventListener("keydown", key);
    new ResizeObserver(() => {
      timeline().draw();
      if (timeline().state().view) timeline().go(timeline().state().view.from, timeline().state().view.to);
    }).observe(host);
  }

  function leave() {
    clearTimeout(naming);
    vramscope.tip.hide();
    if (timeline().state().frame) timeline().hover(-1);
  }

  /** Tell about the allocation under the pointer; its stack's top comes once the pointer rests. */
  function tell(event) {
    const found = timeline().under(event);
    clearTimeout(naming);
    if (!found || found.k < 0) {
      leave();
      return;
    }
    const { frame } = timeline().state();
    timeline().hover(found.k);
    vramscope.tip.show(vramscope.memoryWords.tip(frame, found.k), event.clientX, event.clientY);
    naming = setTimeout(name, NAME_AFTER_MS, frame.allocation[found.k], event);
  }

  async function name(allocation, event) {
    const known = await vramscope.details.about(allocation).catch(() => null);
    if (known && known.site) vramscope.tip.add(vramscope.memoryWords.shortSite(known.site), event.clientX, event.clientY);
  }

  /** Select what was clicked, and move the cursor there. */
  function pick(event) {
    const found = timeline().under(event);
    if (!found) return;
    const { frame } = timeline().state();
    vramscope.page.pick(found.at, found.k < 0 ? null : frame.allocation[found.k]);
  }

  function wheel(event) {
    const { view } = timeline().state();
    if (!view) return;
    const area = timeline().box();
    if (event.ctrlKey || event.metaKey) {
      const share = (event.clientX - element("memory").getBoundingClientRect().left - area.left) / area.width;
      const at = view.from + Math.min(1, Math.max(0, share)) * (view.to - view.from);
      timeline().zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.008), at);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      timeline().pan((event.deltaX || event.deltaY) / area.width);
    } else return; // the page scrolls
    event.preventDefault();
  }

  function key(event) {
    if (!timeline().state().view || event.ctrlKey || event.metaKey || event.altKey) return;
    const does = {
      ArrowLeft: () => timeline().pan(-0.25),
      ArrowRight: () => timeline().pan(0.25),
      "+": () => timeline().zoom(0.5),
      "=": () => timeline().zoom(0.5),
      "-": () => timeline().zoom(2),
      0: () => timeline().showWhole(),
      Escape: () => vramscope.page.pick(null, null),
    }[event.key];
    if (!does) return;
    does();
    event.preventDefault();
  }

  vramscope.memoryInput = { attach };
})();
