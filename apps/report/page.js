// Shows the values under the pointer. Without this script the page shows the same charts.
const tip = document.getElementById("tip");
const text = (v, share) => (share ? (100 * v).toPrecision(4) + " %" : String(Number(v.toPrecision(6))));
for (const svg of document.querySelectorAll("svg[data-points]")) {
  const chart = JSON.parse(document.getElementById(svg.dataset.points).textContent);
  const cross = svg.querySelector(".cross");
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) * chart.width) / box.width;
    const x = chart.x0 + ((at - chart.left) / (chart.right - chart.left)) * (chart.x1 - chart.x0);
    tip.replaceChildren();
    for (const curve of chart.curves) {
      let near = 0;
      for (let i = 1; i < curve.x.length; ++i) if (Math.abs(curve.x[i] - x) < Math.abs(curve.x[near] - x)) near = i;
      const line = document.createElement("div");
      const key = document.createElement("i");
      key.className = "key";
      key.style.background = curve.color;
      const value = document.createElement("b");
      value.textContent = text(curve.y[near], chart.share);
      line.append(key, curve.name + " ", value, " at step " + curve.x[near]);
      tip.append(line);
    }
    tip.style.display = "block";
    tip.style.left = Math.max(8, Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
    cross.setAttribute("x1", at);
    cross.setAttribute("x2", at);
    cross.style.visibility = at >= chart.left && at <= chart.right ? "visible" : "hidden";
  });
  svg.addEventListener("pointerleave", () => {
    tip.style.display = "none";
    cross.style.visibility = "hidden";
  });
}
