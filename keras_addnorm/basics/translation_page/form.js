"use strict";
const find = (id) => document.getElementById(id);

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function showError(message) {
  find("error").textContent = message;
  find("error").hidden = !message;
}

// Does the work for the button, and for Ctrl + Enter. What is asked for later replaces what is
// still at work: `isCurrent` tells `work` whether it is. `clear` takes earlier results away.
function whenAsked(work, clear) {
  let latest = 0;
  const run = async () => {
    const mine = ++latest;
    const isCurrent = () => mine === latest;
    showError("");
    find("translate").setAttribute("aria-disabled", "true");
    try {
      await work(find("text").value, isCurrent);
    } catch (error) {
      if (isCurrent()) {
        clear();
        showError(error.message);
      }
    } finally {
      if (isCurrent()) find("translate").removeAttribute("aria-disabled");
    }
  };
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  find("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
}
