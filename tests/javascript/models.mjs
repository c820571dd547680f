// Validates objects of prometheus-operator's kinds with models that are made from its definitions, and prints what is wrong as JSON.
//
//     node models.mjs < objects.json
import {readFileSync} from 'node:fs';
import {ServiceMonitor} from '@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor';

const models = {ServiceMonitor};
const wrong = [];
for (const each of JSON.parse(readFileSync(0))) {
  const Model = models[each.kind];
  try {
    if (!Model) throw new Error(`no model of ${each.kind}`);
    new Model(each).validate();
  } catch (error) {
    wrong.push(`${each.kind} ${each.metadata.name}: ${error.message}`);
  }
}
console.log(JSON.stringify(wrong));
