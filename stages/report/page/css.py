"""The style sheet of the report page, light or dark as the reader's browser prefers."""

CSS = """
:root { color-scheme: light dark; --paper: #fcfcfa; --card: #ffffff; --ink: #1d2433; --muted: #667085; --rule: #d9dde5;
  --tint: #f2f5fb; --accent: #2f6fde; --good: #16805f; --bad: #c2412d; --miss: #b3461a; --warn: #fdf0ec;
  --series0: #2f6fde; --series1: #d9622b; --series2: #16907a; --series3: #8a55d7;
  --series4: #b3831a; --series5: #cf3f6f; --series6: #3f8fb5; --series7: #6d7a28; }
@media (prefers-color-scheme: dark) { :root { --paper: #12151c; --card: #191d26; --ink: #e6e9f0; --muted: #98a2b3;
  --rule: #323846;
  --tint: #1f2633; --accent: #7aa7ff; --good: #5fcfa8; --bad: #ff8a75; --miss: #ffb088; --warn: #33201c;
  --series0: #7aa7ff; --series1: #ff9a66; --series2: #4fd0b4; --series3: #bb95ff;
  --series4: #e3bb55; --series5: #ff83a8; --series6: #7cc7ea; --series7: #b4c65e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font: 16px/1.55 "Inter", "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif; }
main, header, footer { max-width: 70rem; margin: 0 auto; padding: 0 1.5rem; }
header { padding-top: 3.2rem; }
.overline { color: var(--accent); font-size: .78rem; font-weight: 650; letter-spacing: .09em; text-transform: uppercase;
  margin: 0; }
h1 { font-size: 2.3rem; line-height: 1.15; letter-spacing: -.022em; font-weight: 700; margin: .25rem 0 .6rem;
  overflow-wrap: anywhere; }
.lede { color: var(--muted); font-size: 1.08rem; max-width: 46rem; margin: 0; }
h2 { font-size: 1.28rem; letter-spacing: -.012em; font-weight: 660; margin: 3.2rem 0 .3rem; }
h3 { font-size: 1rem; font-weight: 640; margin: 1.8rem 0 .4rem; }
p.note, figcaption, caption, .note { color: var(--muted); font-size: .885rem; line-height: 1.5; max-width: 52rem;
  margin: .35rem 0 1rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .9rem; margin: 1.9rem 0 0; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: .7rem; padding: .85rem 1.05rem; }
.tile b { display: block; font-size: 1.62rem; font-weight: 680; letter-spacing: -.02em; line-height: 1.25; }
.tile span { display: block; color: var(--muted); font-size: .82rem; line-height: 1.35; margin-top: .15rem; }
.alarm { background: var(--warn); border-left: 4px solid var(--bad); border-radius: .35rem; padding: .7rem 1rem;
  margin: 1.6rem 0 0; }
.scroll { overflow-x: auto; margin: .7rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .925rem; font-variant-numeric: tabular-nums; }
caption { caption-side: bottom; text-align: left; }
thead th { color: var(--muted); font-weight: 560; font-size: .82rem; text-align: right; vertical-align: bottom;
  white-space: nowrap;
  border-bottom: 1.5px solid var(--ink); padding: .35rem .5rem; }
thead tr.groups th { border-bottom: 0; padding-bottom: 0; text-align: center; letter-spacing: .02em; }
thead tr.groups th[colspan]:not(.blank)::after { content: ""; display: block; border-bottom: 1px solid var(--rule);
  margin: .2rem .1rem 0; }
tbody td, tbody th { border-bottom: 1px solid var(--rule); padding: .46rem .5rem; text-align: right; font-weight: 400;
  white-space: nowrap; }
tbody tr:last-child > * { border-bottom: 1.5px solid var(--ink); }
th.text, td.text, thead th.text { text-align: left; }
td.wrap { white-space: normal; }
tr.baseline > * { background: var(--tint); }
td.best { font-weight: 700; }
.tag { display: inline-block; margin-left: .5rem; padding: 0 .45rem; border-radius: 1rem; font-size: .7rem; font-weight: 600;
  color: var(--accent); border: 1px solid currentColor; vertical-align: .08em; }
.search, .faint { color: var(--muted); }
.up { color: var(--good); } .down { color: var(--bad); }
small { color: var(--muted); font-size: .76rem; margin-left: .2rem; }
figure { margin: 1rem 0 0; } figure svg { width: 100%; height: auto; display: block; }
figure svg text { fill: var(--ink);
 font-family: "Inter", "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif !important; }
.bar { display: inline-block; height: .5rem; min-width: 2px; border-radius: .15rem; background: var(--series1); opacity: .75;
  vertical-align: middle; }
details { margin: .3rem 0; } summary { cursor: pointer; color: var(--accent); font-size: .885rem; }
.pair { border-left: 2px solid var(--rule); padding: .1rem 0 .1rem .8rem; margin: .55rem 0; font-size: .885rem;
  overflow-wrap: anywhere; }
.sample { background: var(--card); border: 1px solid var(--rule); border-radius: .7rem; padding: .8rem 1.1rem; margin: .8rem 0; }
.sample dl { display: grid; grid-template-columns: minmax(6rem, 13rem) 1fr; gap: .28rem 1rem; margin: 0; }
.sample dt { color: var(--muted); font-size: .84rem; line-height: 1.85; overflow-wrap: anywhere; } .sample dd { margin: 0;
  overflow-wrap: anywhere; }
.sample .given { border-bottom: 1px solid var(--rule); padding-bottom: .45rem; margin-bottom: .45rem; }
mark { background: none; color: var(--miss); text-decoration: underline dotted 1.5px; text-underline-offset: .22em; }
code { font: .84em/1.5 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
footer { color: var(--muted); font-size: .84rem; padding-top: 3rem; padding-bottom: 3rem; }
@media (max-width: 40rem) { h1 { font-size: 1.75rem; } header { padding-top: 1.8rem; } .sample dl { grid-template-columns: 1fr;
  gap: 0; } }
@media print { .tile, .sample, figure, tr { break-inside: avoid; } body { background: none; } }
"""
