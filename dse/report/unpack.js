// Parts of this file that are packed: base64 of gzip in script elements that the browser does not run.

function decoded(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text),
    bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function unpackText(id) {
  const source = document.getElementById(id),
    stream = new Blob([decoded(source.textContent)]).stream().pipeThrough(new DecompressionStream("gzip")),
    text = await new Response(stream).text();
  source.remove();
  return text;
}

// The page's data; null, and a line that says so, where they are not there or cannot be read.
async function unpackData() {
  if (!document.getElementById("end")) return null; // the file was cut off, which the page says already
  if (!window.DecompressionStream) {
    refusePage("This browser cannot unpack the page: open it in Chrome 80, Firefox 113, Safari 16.4 or newer. What is below is complete without scripts.");
    return null;
  }
  try {
    return JSON.parse(await unpackText("data"));
  } catch {
    refusePage("This page has no data that can be read: the file was changed or cut off. Write it again with the command that made it.");
    return null;
  }
}

// A bundle of Plotly; one after the other, each keeps its own name.
const engines = {};

async function loadEngine(id) {
  if (engines[id] || !document.getElementById(id)?.textContent) return engines[id];
  const kept = window.Plotly,
    script = document.createElement("script");
  script.textContent = await unpackText(id);
  document.body.append(script);
  script.remove();
  engines[id] = window.Plotly;
  window.Plotly = kept ?? window.Plotly;
  return engines[id];
}
