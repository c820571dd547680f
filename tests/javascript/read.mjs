// Reads addresses with the JSON-LD and SPARQL tools that JavaScript programs use, and prints what they find as JSON.
//
//     node read.mjs '{"jsonld": [URL, …], "comunica": [[URL, QUERY], …]}'
//
// "jsonld" gives the statements of each document as N-Quads, "comunica" the rows of each query, as N-Triples terms by variable.
import jsonld from 'jsonld';
import {QueryEngine} from '@comunica/query-sparql';

const asked = JSON.parse(process.argv[2]);
const engine = new QueryEngine();

const escaped = (text) => JSON.stringify(text);
const written = (term) => {
  if (term.termType !== 'Literal') return term.termType === 'NamedNode' ? `<${term.value}>` : `_:${term.value}`;
  if (term.language) return `${escaped(term.value)}@${term.language}`;
  const type = term.datatype.value;
  return escaped(term.value) + (type === 'http://www.w3.org/2001/XMLSchema#string' ? '' : `^^<${type}>`);
};

const rows = async ([source, query]) => {
  const found = await (await engine.queryBindings(query, {sources: [source]})).toArray();
  return found.map((row) => Object.fromEntries([...row].map(([name, term]) => [name.value, written(term)])));
};

console.log(JSON.stringify({
  jsonld: await Promise.all((asked.jsonld ?? []).map((url) => jsonld.toRDF(url, {format: 'application/n-quads'}))),
  comunica: await Promise.all((asked.comunica ?? []).map(rows)),
}));
