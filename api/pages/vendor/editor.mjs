// The query editor: CodeMirror with SPARQL, completion of terms, variables, keywords and the names in the store.
// It stands in a shadow root, whose style sheets the Content-Security-Policy of the pages allows.

import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { HighlightStyle, bracketMatching, syntaxHighlighting, syntaxTree } from "@codemirror/language";
import { EditorState } from "@codemirror/state";
import { Decoration, EditorView, ViewPlugin, drawSelection, keymap, lineNumbers } from "@codemirror/view";
import { sparql } from "codemirror-lang-sparql";

const KEYWORDS = (
  "SELECT ASK CONSTRUCT DESCRIBE WHERE FROM NAMED PREFIX BASE DISTINCT REDUCED AS OPTIONAL UNION MINUS FILTER EXISTS BIND VALUES " +
  "GRAPH GROUP BY HAVING ORDER ASC DESC LIMIT OFFSET COUNT SUM MIN MAX AVG SAMPLE GROUP_CONCAT SEPARATOR STR LANG LANGMATCHES " +
  "DATATYPE BOUND IRI URI RAND ABS CEIL FLOOR ROUND CONCAT STRLEN UCASE LCASE ENCODE_FOR_URI CONTAINS STRSTARTS STRENDS STRBEFORE " +
  "STRAFTER YEAR MONTH DAY HOURS MINUTES SECONDS NOW COALESCE IF SAMETERM ISIRI ISBLANK ISLITERAL ISNUMERIC REGEX SUBSTR REPLACE IN NOT"
).split(" ");
const PREFIXED = /[A-Za-z][\w.-]*:[\w-]*$|:[\w-]*$/;
const WAIT = 150; // milliseconds without a key before the store is asked

const look = EditorView.theme({
  "&": { backgroundColor: "var(--back)", color: "var(--text)", border: "1px solid var(--muted)", borderRadius: "4px", fontSize: ".9rem" },
  "&.cm-focused": { outline: "3px solid var(--accent)", outlineOffset: "2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5", maxHeight: "60vh" },
  ".cm-content": { minHeight: "12rem", caretColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--muted)", borderRight: "1px solid var(--line)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--band)" },
  ".cm-matchingBracket": { outline: "1px solid var(--accent)" },
  ".cm-wrong": { textDecoration: "underline wavy var(--bad)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--muted)" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--back)" },
  ".cm-completionDetail": { color: "inherit", marginLeft: "1rem" },
  ".cm-keyword": { color: "var(--accent)", fontWeight: "600" },
  ".cm-variable": { color: "var(--link)" },
  ".cm-text": { color: "var(--good)" },
  ".cm-remark": { color: "var(--muted)", fontStyle: "italic" },
  ".cm-number": { color: "var(--waiting)" },
});

// The words of the language, coloured by what they look like: the names of its syntax tree are no interface of that package.
const LOOKS = [
  ["cm-remark", /^#/],
  ["cm-text", /^["']/],
  ["cm-variable", /^[?$]/],
  ["cm-number", /^[+-]?[\d.]+/],
  ["cm-keyword", /^[A-Za-z_]+$/],
];

function marks(view) {
  const found = [];
  for (const { from, to } of view.visibleRanges) {
    syntaxTree(view.state).iterate({
      from,
      to,
      enter: ({ node, type }) => {
        if (type.isError) {
          const end = Math.min(Math.max(node.to, node.from + 1), view.state.doc.length);
          if (end > node.from) found.push(Decoration.mark({ class: "cm-wrong" }).range(node.from, end));
        } else if (!node.firstChild && node.to > node.from) {
          const text = view.state.sliceDoc(node.from, Math.min(node.to, node.from + 40));
          const kind = LOOKS.find(([, pattern]) => pattern.test(text));
          if (kind) found.push(Decoration.mark({ class: kind[0] }).range(node.from, node.to));
        }
      },
    });
  }
  return Decoration.set(found, true);
}

const colours = ViewPlugin.fromClass(
  class {
    constructor(view) { this.decorations = marks(view); }
    update(update) {
      if (update.docChanged || update.viewportChanged || syntaxTree(update.state) !== syntaxTree(update.startState)) this.decorations = marks(update.view);
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

// -- completion ------------------------------------------------------------------------------------------------------------
function variables(context) {
  const word = context.matchBefore(/[?$]\w*/);
  if (!word) return null;
  const own = context.state.sliceDoc(word.from, word.to);
  const found = new Set(context.state.doc.toString().match(/[?$]\w+/g));
  found.delete(own);
  return { from: word.from, options: [...found].map((label) => ({ label, type: "variable" })), validFor: /^[?$]\w*$/ };
}

function terms(namespace, all) {
  return (context) => {
    const word = context.matchBefore(PREFIXED);
    if (!word) return null;
    const declared = new RegExp(`prefix\\s+([\\w.-]*:)\\s*<${namespace.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}>`, "i");
    const prefix = declared.exec(context.state.doc.toString())?.[1] ?? ":";
    if (!context.state.sliceDoc(word.from, word.to).startsWith(prefix)) return null;
    const options = all.map((name) => ({ label: prefix + name, type: /^[A-Z]/.test(name) ? "class" : "property" }));
    return { from: word.from, options, validFor: /^[\w.-]*:[\w-]*$/ };
  };
}

function keywords(context) {
  const word = context.matchBefore(/[A-Za-z_]+/);
  if (!word || (word.to - word.from < 2 && !context.explicit)) return null;
  if (/[?$:<"'\w]/.test(context.state.sliceDoc(word.from - 1, word.from))) return null;
  return { from: word.from, options: KEYWORDS.map((label) => ({ label, type: "keyword" })), validFor: /^\w*$/ };
}

function entities(suggest) {
  return async (context) => {
    const word = context.matchBefore(/<[^<>"{}|^`\\\s]*/);
    const text = word ? context.state.sliceDoc(word.from + 1, word.to).replace(/^https?:\/\/.*\//, "") : "";
    if (text.length < 2) return null;
    await new Promise((done) => setTimeout(done, WAIT));
    if (context.aborted) return null;
    const options = (await suggest(text)).map(({ iri, name, detail }) => ({ label: name, detail, type: "constant", apply: `<${iri}>` }));
    const closed = context.state.sliceDoc(word.to, word.to + 1) === ">";
    return { from: word.from, to: word.to + (closed ? 1 : 0), options, filter: false };
  };
}

/** Put an editor in the place of `area`, which keeps the text for its form; returns the editor's element. */
export function edit(area, { namespace, all, suggest, label, run }) {
  const place = document.createElement("div");
  place.id = `${area.id}-editor`;
  const view = new EditorView({
    parent: place.attachShadow({ mode: "open", delegatesFocus: true }),
    root: place.shadowRoot,
    state: EditorState.create({
      doc: area.value,
      extensions: [
        lineNumbers(), history(), drawSelection(), bracketMatching(), closeBrackets(), EditorView.lineWrapping, sparql(), look, colours,
        syntaxHighlighting(HighlightStyle.define([])),
        autocompletion({ override: [variables, terms(namespace, all), entities(suggest), keywords], icons: false }),
        keymap.of([
          { key: "Mod-Enter", run: () => { run(); return true; } },
          ...closeBracketsKeymap, ...completionKeymap, ...historyKeymap, ...defaultKeymap,
        ]),
        EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false" }),
        EditorView.updateListener.of((update) => { if (update.docChanged) area.value = update.state.doc.toString(); }),
      ],
    }),
  });
  area.hidden = true;
  area.required = false; // a hidden field cannot ask for its value
  area.after(place);
  place.view = view;
  return place;
}
