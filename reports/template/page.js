const { figures, templates } = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const touch = matchMedia("(pointer: coarse)");
const config = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
                 modeBarButtonsToRemove: ["select2d", "lasso2d"] };
// The library is in the page as base 64 of gzip, two fifths of its size; the page's policy knows it by its hash.
async function load(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  const text = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(text).text();
  document.head.append(script);
}
function draw() {
  for (const [name, figure] of Object.entries(figures)) {
    const layout = { ...figure.layout, template: dark.matches ? templates.dark : templates.light,
                     dragmode: touch.matches ? false : "zoom" };
    Plotly.react(document.getElementById(name), structuredClone(figure.data), structuredClone(layout), config);
  }
}
load("plotly").then(() => {
  dark.addEventListener("change", draw);
  draw();
}).catch((error) => {
  const words = "The figure needs a browser of 2023 or later; the numbers are in the tables.";
  for (const name of Object.keys(figures)) document.getElementById(name).textContent = words;
  throw error;
});
