// Starts the language server, `zenc lsp`, for .zen files. Colours need nothing of this.
const vscode = require("vscode");

let client;

async function activate() {
  let node;
  try {
    node = require("vscode-languageclient/node");
  } catch {
    vscode.window.showWarningMessage("zenc: run `npm install --omit=dev` in the folder of this extension for more than colours.");
    return;
  }
  const [command, ...args] = vscode.workspace.getConfiguration("zenc").get("command");
  const options = { documentSelector: [{ language: "zen" }] };
  client = new node.LanguageClient("zenc", "zenc", { command, args }, options);
  await client.start();
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
