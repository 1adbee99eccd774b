const { figures, templates } = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const touch = matchMedia("(pointer: coarse)");
const config = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
                 modeBarButtonsToRemove: ["select2d", "lasso2d"] };
function draw() {
  for (const [name, figure] of Object.entries(figures)) {
    const layout = { ...figure.layout, template: dark.matches ? templates.dark : templates.light,
                     dragmode: touch.matches ? false : "zoom" };
    Plotly.react(document.getElementById(name), structuredClone(figure.data), structuredClone(layout), config);
  }
}
dark.addEventListener("change", draw);
draw();
