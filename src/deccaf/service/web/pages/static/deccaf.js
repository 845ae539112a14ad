// One key presses one button: data-key="b" is pressed by B, unless somebody types into a field.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const at = event.target;
  if (at.matches && at.matches("textarea, select, input:not([type=range]):not([type=hidden])")) return;
  for (const button of document.querySelectorAll("[data-key]")) {
    if (button.dataset.key === event.key.toLowerCase()) {
      event.preventDefault();
      button.click();
      return;
    }
  }
});

// A case is decided once: the second press of a key does nothing.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => {
  for (const form of document.forms) delete form.dataset.sent;
});

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
