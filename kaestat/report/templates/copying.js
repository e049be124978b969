"use strict";
// Each .paste has a button that copies its text. Pages of file:// may lack navigator.clipboard: selecting works there.
for (const code of document.querySelectorAll("pre.paste")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const text = code.textContent;
    let copied = false;
    try {
      await navigator.clipboard.writeText(text);
      copied = true;
    } catch {
      const chosen = document.createRange();
      chosen.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(chosen);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Selected: press Ctrl C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  const holder = document.createElement("div");
  holder.className = "copyable";
  code.replaceWith(holder);
  holder.append(code, button);
}
