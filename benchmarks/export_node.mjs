// Outputs of a model in ONNX Runtime for JavaScript: node export_node.mjs PACKAGE MODEL FOLDER.
// NODE_MODULES has the package, onnxruntime-node or onnxruntime-web (WebAssembly, as in browsers).
// FOLDER has input.json (type and dims) and input.bin; output.json and NAME.bin are written to it.
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const [name, model, folder] = process.argv.slice(2);
const ort = createRequire(`${process.env.NODE_MODULES}/`)(name);
const { type, dims } = JSON.parse(readFileSync(`${folder}/input.json`));
const bytes = new Uint8Array(readFileSync(`${folder}/input.bin`));
const values = type === 'uint8' ? bytes : new Float32Array(bytes.buffer);

const session = await ort.InferenceSession.create(readFileSync(model));
const found = await session.run({ image: new ort.Tensor(type, values, dims) });
const outputs = session.outputNames.map(key => {
  const { data, type, dims } = found[key];
  writeFileSync(`${folder}/${key}.bin`, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  return { key, type, dims };
});
writeFileSync(`${folder}/output.json`, JSON.stringify(outputs));
