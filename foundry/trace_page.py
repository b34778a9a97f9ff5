"""The picture of a start: one HTML file without anything from elsewhere."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence

from foundry.tracing import Event

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>@TITLE@</title>
<style>
body { font: 13px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff; }
h1 { font-size: 1.2em; } h1 small { font-weight: normal; color: #666; }
#picture { position: relative; border: 1px solid #ccc; overflow: hidden; cursor: crosshair; }
.row { position: relative; border-top: 1px solid #eee; }
.row b { position: absolute; left: 4px; top: 2px; font-weight: normal; color: #555; z-index: 2; pointer-events: none;
  background: #fffc; }
.bar { position: absolute; height: 15px; border-radius: 2px; overflow: hidden; white-space: nowrap; font-size: 11px;
  color: #fff; padding-left: 2px; box-sizing: border-box; }
.tick { position: absolute; top: 0; bottom: 0; border-left: 1px dotted #ddd; color: #888; font-size: 11px; }
#tip { position: fixed; display: none; background: #222; color: #fff; padding: 4px 8px; border-radius: 4px;
  pointer-events: none; white-space: pre; z-index: 9; }
table { border-collapse: collapse; margin-top: 1em; } td, th { padding: 1px 12px 1px 0; text-align: right; }
td:first-child, th:first-child { text-align: left; } .swatch { display: inline-block; width: 10px; height: 10px;
  margin-right: 6px; border-radius: 2px; }
</style></head><body>
<h1>@TITLE@ <small id="about"></small></h1>
<div id="picture"></div>
<p>Wheel: zoom. Drag: move. Double click: everything.</p>
<table id="sums"></table><div id="tip"></div>
<script>
const events = @EVENTS@, threads = @THREADS@, NAME = 0, DETAIL = 1, THREAD = 2, BEGIN = 3, END = 4, BYTES = 5, COUNT = 6;
const last = Math.max(1, ...events.map(e => e[END])), names = [...new Set(events.map(e => e[NAME]))];
const color = name => `hsl(${(names.indexOf(name) * 137.5) % 360} 55% 42%)`;
const ms = ns => (ns / 1e6).toFixed(ns < 1e7 ? 3 : 1) + " ms";
const size = b => b < 1024 ? b + " B" : b < 1 << 20 ? (b / 1024).toFixed(1) + " KiB" : (b / (1 << 20)).toFixed(1) + " MiB";
const picture = document.getElementById("picture"), tip = document.getElementById("tip");
document.getElementById("about").textContent = `${ms(last)}, ${threads.length} threads, ${events.length} events`;
let from = 0, to = last;
function text(e) {
  return [e[NAME] + (e[DETAIL] ? ": " + e[DETAIL] : ""), `${ms(e[END] - e[BEGIN])}, from ${ms(e[BEGIN])} to ${ms(e[END])}`,
    ...(e[BYTES] ? [size(e[BYTES])] : []), ...(e[COUNT] ? [`${e[COUNT]} items`] : [])].join("\\n");
}
// Bars that lie within another one of their thread go below it.
const depths = new Map();
threads.forEach((_, t) => {
  const open = [];
  events.filter(e => e[THREAD] === t).forEach(e => {
    while (open.length && open[open.length - 1] <= e[BEGIN]) open.pop();
    depths.set(e, open.length);
    open.push(e[END]);
  });
});
function draw() {
  const width = picture.clientWidth, scale = width / (to - from);
  picture.replaceChildren();
  const step = 10 ** Math.floor(Math.log10((to - from) / 2));
  for (let t = Math.ceil(from / step) * step; t < to; t += step) {
    const tick = picture.appendChild(document.createElement("div"));
    tick.className = "tick"; tick.style.left = (t - from) * scale + "px"; tick.textContent = (t / 1e6).toFixed(step < 1e6 ? 2 : 0);
  }
  picture.appendChild(document.createElement("div")).style.height = "16px";
  threads.forEach((name, t) => {
    const row = picture.appendChild(document.createElement("div"));
    row.className = "row"; row.appendChild(document.createElement("b")).textContent = name;
    let deepest = 0, filled = [];
    events.forEach(e => {
      if (e[THREAD] !== t || e[END] < from || e[BEGIN] > to) return;
      const depth = depths.get(e), left = (e[BEGIN] - from) * scale, right = (e[END] - from) * scale;
      deepest = Math.max(deepest, depth);
      if (right < (filled[depth] ?? -1)) return;  // narrower than what is drawn there already
      filled[depth] = left + 1;
      const bar = row.appendChild(document.createElement("div"));
      bar.className = "bar"; bar.style.left = left + "px"; bar.style.width = Math.max(1, right - left) + "px";
      bar.style.top = 20 + depth * 17 + "px"; bar.style.background = color(e[NAME]);
      if (right - left > 30) bar.textContent = e[NAME] + (e[DETAIL] ? " " + e[DETAIL] : "");
      bar.onmousemove = move => {
        tip.style.display = "block"; tip.textContent = text(e);
        tip.style.left = Math.min(move.clientX + 12, innerWidth - tip.offsetWidth - 8) + "px"; tip.style.top = move.clientY + 14 + "px";
      };
      bar.onmouseleave = () => { tip.style.display = "none"; };
    });
    row.style.height = 40 + deepest * 17 + "px";
  });
}
picture.onwheel = wheel => {
  wheel.preventDefault();
  const at = from + (to - from) * (wheel.clientX - picture.getBoundingClientRect().left) / picture.clientWidth;
  const factor = wheel.deltaY < 0 ? 0.8 : 1.25;
  from = Math.max(0, at - (at - from) * factor); to = Math.min(last, at + (to - at) * factor); draw();
};
let held = null;
picture.onmousedown = down => { held = [down.clientX, from, to]; };
onmouseup = () => { held = null; };
onmousemove = move => {
  if (!held) return;
  const shift = Math.max(-held[1], Math.min(last - held[2], (held[0] - move.clientX) * (held[2] - held[1]) / picture.clientWidth));
  from = held[1] + shift; to = held[2] + shift; draw();
};
picture.ondblclick = () => { from = 0; to = last; draw(); };
onresize = draw;
draw();
const sums = document.getElementById("sums");
sums.insertRow().innerHTML = "<th>what<th>times<th>in all<th>longest<th>bytes<th>items";
names.map(name => events.filter(e => e[NAME] === name)).sort((a, b) => total(b) - total(a)).forEach(found => {
  const row = sums.insertRow(), first = row.insertCell(), swatch = first.appendChild(document.createElement("span"));
  swatch.className = "swatch"; swatch.style.background = color(found[0][NAME]);
  first.append(found[0][NAME]);
  const bytes = found.reduce((sum, e) => sum + e[BYTES], 0), count = found.reduce((sum, e) => sum + e[COUNT], 0);
  for (const cell of [found.length, ms(total(found)), ms(Math.max(...found.map(e => e[END] - e[BEGIN]))), bytes ? size(bytes) : "", count || ""])
    row.insertCell().textContent = cell;
});
function total(found) { return found.reduce((sum, e) => sum + e[END] - e[BEGIN], 0); }
</script></body></html>
"""


def page(title: str, events: Sequence[Event]) -> str:
    """The page's text: a row per thread, nested bars, sums per kind of work."""
    threads = list(dict.fromkeys(event.thread for event in events))
    start = min((event.begin for event in events), default=0)
    rows = [
        [
            event.name,
            event.detail,
            threads.index(event.thread),
            event.begin - start,
            event.end - start,
            event.bytes,
            event.count,
        ]
        for event in sorted(events, key=lambda event: (event.begin, -event.end))
    ]
    values = {"TITLE": html.escape(title), "THREADS": _script(threads), "EVENTS": _script(rows)}
    # In one pass: a name may read like a place to fill in.
    return re.sub("@(TITLE|THREADS|EVENTS)@", lambda place: values[place[1]], _PAGE)


def _script(value: object) -> str:
    # Names come from archives: nothing in them may end the script.
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("\u2028", "\\u2028")
