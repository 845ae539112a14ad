// One key presses one button: data-key="b" is pressed by B, unless somebody types into a field.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const at = event.target;
  if (at.matches && at.matches("textarea, select, input:not([type=range]):not([type=hidden]):not([type=checkbox])")) return;
  for (const button of document.querySelectorAll("[data-key]")) {
    if (button.dataset.key === event.key.toLowerCase()) {
      event.preventDefault();
      button.click();
      return;
    }
  }
});

// What is opened by a key can be filled in at once; Escape closes it again.
document.addEventListener("toggle", (event) => {
  const field = event.target.open && event.target.querySelector("input:not([type=hidden]), textarea");
  if (field && event.target.closest(".aside")) field.focus();
}, true);
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" && event.target.closest && event.target.closest(".aside details[open]");
  if (!open) return;
  open.open = false;
  open.querySelector("summary").focus();
});

// A form is sent once: the second press of a key does nothing. A form with a file says that it is under way.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  else if (form.querySelector("input[type=file]")) underWay(form, "Sending and reading the file");
  form.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => {
  for (const form of document.forms) delete form.dataset.sent;
  document.querySelectorAll(".under-way").forEach(endOf);
});

// What is under way, with a bar (full as far as the file is sent, where that is known) and the seconds so far.
const underWay = (form, words) => {
  let sign = form.querySelector(".under-way");
  if (!sign) {
    sign = document.createElement("p");
    sign.className = "under-way";
    sign.setAttribute("role", "status");
    sign.innerHTML = "<progress></progress><span></span>";
    form.append(sign);
    const began = Date.now();
    sign.clock = setInterval(() => {
      sign.lastChild.textContent = `${sign.dataset.words} … ${Math.round((Date.now() - began) / 1000)} s`;
    }, 1000);
  }
  sign.dataset.words = words;
  sign.lastChild.textContent = `${words} …`;
  return sign;
};
const endOf = (sign) => {
  clearInterval(sign.clock);
  sign.remove();
};
const fileForm = (element) => {
  const form = element.closest && element.closest("form");
  return form && form.querySelector("input[type=file]") ? form : null;
};
document.addEventListener("htmx:beforeRequest", (event) => {
  const form = fileForm(event.target);
  if (form) underWay(form, "Sending the file");
});
document.addEventListener("htmx:xhr:progress", (event) => {
  const form = fileForm(event.target), { loaded, total, lengthComputable } = event.detail;
  if (!form || !lengthComputable || !form.querySelector(".under-way")) return;
  const sign = underWay(form, loaded < total ? "Sending the file" : "Reading the file");
  if (loaded < total) sign.firstChild.value = loaded / total;
  else sign.firstChild.removeAttribute("value");
});

// Without an answer numbers would grow old unnoticed: say since when.
let lastHeard = Date.now();
const heard = (event) => {
  const sign = document.getElementById("away"), status = event.detail.xhr ? event.detail.xhr.status : 0;
  const form = fileForm(event.target);
  if (form) form.querySelectorAll(".under-way").forEach(endOf);
  if (!sign) return;
  if (status && status < 500) {
    lastHeard = Date.now();
    sign.hidden = true;
  } else if (sign.hidden) {
    sign.hidden = false;
    sign.textContent = `No connection since ${hours(new Date(lastHeard))}: what you see is of then. Trying again …`;
  }
};
document.addEventListener("htmx:afterRequest", heard);
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.xhr.status >= 500 && event.target.closest("[data-keeps]")) event.detail.shouldSwap = false;
});

// Times in the reader's time zone; the page says which.
const two = (number) => String(number).padStart(2, "0");
const hours = (when) => `${two(when.getHours())}:${two(when.getMinutes())}`;
const localTimes = (root) => {
  const today = new Date().toDateString();
  for (const time of root.querySelectorAll("time[datetime]")) {
    const when = new Date(time.getAttribute("datetime"));
    if (isNaN(when)) continue;
    const day = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} `;
    time.textContent = (when.toDateString() === today ? "" : day) + hours(when);
  }
};
const nameZone = () => {
  const zone = document.getElementById("zone"), { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  const minutes = -new Date().getTimezoneOffset(), size = Math.abs(minutes);
  const shift = `UTC${minutes < 0 ? "−" : "+"}${Math.floor(size / 60)}${size % 60 ? ":" + two(size % 60) : ""}`;
  if (zone) zone.textContent = minutes === 0 && /UTC|GMT/.test(timeZone) ? "UTC" : `in ${timeZone} (${shift})`;
};
localTimes(document);
nameZone();
document.addEventListener("htmx:afterSwap", (event) => localTimes(event.target));

// Parts that renew themselves change only where something is new, so that the focus stays where it is.
const alike = (old, fresh) =>
  old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && (old.id || "") === (fresh.id || "");
const merge = (old, fresh) => {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !/^(open|data-sent)$/.test(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  mergeChildren(old, fresh);
};
// What stands in both, in order and as often as can be, is kept; whoever has the focus is never moved.
const mergeChildren = (old, fresh) => {
  const before = [...old.childNodes], after = [...fresh.childNodes];
  const most = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let k = before.length - 1; k >= 0; k--) {
    for (let m = after.length - 1; m >= 0; m--) {
      const pair = alike(before[k], after[m]) ? most[k + 1][m + 1] + (before[k].nodeType === 1 ? 4 : 1) : 0;
      most[k][m] = Math.max(pair, most[k + 1][m], most[k][m + 1]);
    }
  }
  let k = 0, m = 0;
  while (k < before.length || m < after.length) {
    const here = k < before.length && m < after.length && alike(before[k], after[m]);
    if (here && most[k][m] === most[k + 1][m + 1] + (before[k].nodeType === 1 ? 4 : 1)) merge(before[k++], after[m++]);
    else if (m < after.length && (k === before.length || most[k][m] === most[k][m + 1])) old.insertBefore(after[m++], before[k] || null);
    else before[k++].remove();
  }
};
htmx.defineExtension("merge", {
  isInlineSwap: (style) => style === "merge",
  handleSwap: (style, target, fragment) => {
    if (style !== "merge") return false;
    localTimes(fragment);
    mergeChildren(target, fragment);
    return [target];
  },
});

// A link from another site comes without the cookie: whoever is signed in after all goes on by themselves.
const asked = document.querySelector("form[data-next]");
if (asked) {
  fetch("/session", { credentials: "same-origin" }).then((answer) => {
    if (answer.status === 204) location.replace(asked.dataset.next);
  });
}

// The time left on a claim, and a warning before it ends.
const WARN_SECONDS = 120;
const countDown = () => {
  for (const sign of document.querySelectorAll("[data-until]")) {
    const left = Math.max(Math.round(Number(sign.dataset.until) - Date.now() / 1000 + clockError), 0);
    const words = left >= 90 ? `${Math.round(left / 60)} min` : `${left} s`;
    sign.querySelector("[data-left]").textContent = left ? words : "no time";
    const late = left <= WARN_SECONDS;
    if (late && !sign.classList.contains("late")) {
      sign.classList.add("late");
      const warning = document.getElementById(sign.dataset.warns);
      if (warning) warning.hidden = false;
    }
  }
};
const first = document.querySelector("[data-until]");
const clockError = first ? Date.now() / 1000 - Number(first.dataset.now) : 0;
if (first) {
  countDown();
  setInterval(countDown, 1000);
}

// Sliders say their value; the team's slider moves everybody's.
const tell = (slider) => {
  const output = slider.parentElement.querySelector("output");
  if (output) output.textContent = `${slider.value} ${slider.dataset.unit}`;
};
document.addEventListener("input", (event) => {
  const slider = event.target;
  if (slider.type !== "range") return;
  tell(slider);
  if (slider.name !== "team") return;
  for (const other of slider.form.querySelectorAll('input[name^="of:"]')) {
    const was = slider.form.querySelector(`input[name="was:${CSS.escape(other.name.slice(3))}"]`);
    other.value = Math.round((was.value * slider.value) / 100);
    tell(other);
  }
});
document.addEventListener("reset", (event) => {
  const form = event.target;
  setTimeout(() => {
    form.querySelectorAll("input[type=range]").forEach(tell);
    form.dispatchEvent(new Event("capacity-reset"));
  }, 0);
});
