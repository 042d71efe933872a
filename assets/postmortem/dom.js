/**
 * DOM: the few elements that the page's scripts make, and the tooltip; texts come from files and are never read as HTML.
 */
(() => {
  const vramscope = (window.vramscope = window.vramscope || {});

  /** Return an element with a text, a class, and children after the text. */
  function make(tag, text = "", className = "", ...children) {
    const found = document.createElement(tag);
    if (text) found.textContent = text;
    if (className) found.className = className;
    found.append(...children);
    return found;
  }

  /** Return a button that does something. */
  function button(text, does, className = "button small") {
    const found = make("button", text, className);
    found.type = "button";
    found.addEventListener("click", does);
    return found;
  }

  const tip = () => document.getElementById("map-tip");

  function place(x, y) {
    const found = tip();
    found.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - found.offsetWidth - 8))}px`;
    found.style.top = `${y + 18 + found.offsetHeight > window.innerHeight ? y - found.offsetHeight - 10 : y + 18}px`;
  }

  function show(lines, x, y) {
    tip().replaceChildren(...lines.map((text, n) => make(n === 0 ? "b" : "span", text)));
    tip().hidden = false;
    place(x, y);
  }

  /** Add a line to the tooltip that shows. */
  function add(text, x, y) {
    if (tip().hidden) return;
    tip().append(make("span", text));
    place(x, y);
  }

  function hide() {
    tip().hidden = true;
  }

  vramscope.dom = { make, button };
  vramscope.tip = { show, add, hide };
})();
