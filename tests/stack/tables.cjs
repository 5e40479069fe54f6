// Makes of rows what Grafana makes of them before it shows them, with Grafana's own code.
// Reads [{frames, transformations}] from standard input and writes [{field: [value, …]}, …].
const { MutableDataFrame, getFieldDisplayName, standardTransformers, standardTransformersRegistry, transformDataFrame } =
  require('@grafana/data');
// A browser's: there, dashboards keep what their variables stand for.
globalThis.window = { __grafanaSceneContext: {} };
const { map } = require('rxjs/operators');

// The one transformation that lies in Grafana's pages and not in its package.
const extractFields = {
  id: 'extractFields',
  name: 'Extract fields',
  defaultOptions: {},
  operator: (options) => (source) =>
    source.pipe(
      map((frames) =>
        frames.map((frame) => {
          const parsed = frame.fields.find((field) => field.name === options.source).values.map((text) => JSON.parse(text));
          const names = [...new Set(parsed.flatMap((row) => Object.keys(row)))];
          const fields = names.map((name) => ({ name, config: {}, type: 'other', values: parsed.map((row) => row[name]) }));
          return { ...frame, fields: [...frame.fields, ...fields] };
        })
      )
    ),
};
const used = ['merge', 'calculateField', 'filterFieldsByName', 'organize'];
const ours = Object.values(standardTransformers).filter((one) => used.includes(one.id));
standardTransformersRegistry.setInit(() =>
  [...ours, extractFields].map((transformation) => ({ id: transformation.id, name: transformation.name, transformation: async () => transformation }))
);

async function made({ frames, transformations }) {
  const found = frames.map((frame) => new MutableDataFrame(frame));
  const context = { interpolate: (text) => text };
  return new Promise((resolve, reject) =>
    transformDataFrame(transformations, found, context).subscribe({
      next: (result) =>
        resolve(
          result.map((frame) =>
            Object.fromEntries(frame.fields.map((field) => [getFieldDisplayName(field, frame, result), [...field.values]]))
          )
        ),
      error: reject,
    })
  );
}

let text = '';
process.stdin.on('data', (chunk) => (text += chunk));
process.stdin.on('end', async () => {
  const answers = await Promise.all(JSON.parse(text).map(made));
  process.stdout.write(JSON.stringify(answers));
});
