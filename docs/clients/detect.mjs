// Boxes of a picture: node detect.mjs model.onnx picture.jpg
import { readFile } from 'node:fs/promises';
import ort from 'onnxruntime-node';
import sharp from 'sharp';

const [file, picture] = process.argv.slice(2);
if (!picture) throw 'node detect.mjs model.onnx picture.jpg';
const about = JSON.parse(await readFile(file.replace(/\.onnx$/, '.json')));
if (!about.resized || !about.rgb) throw Error('export the model with --resize --rgb');
const session = await ort.InferenceSession.create(file);

const upright = sharp(picture).rotate().removeAlpha().toColourspace('srgb'); // as its EXIF says
const { data, info } = await upright.raw().toBuffer({ resolveWithObject: true });
const area = info.width * info.height;
const pixels = Uint8Array.from({ length: 3 * area }, (_, i) => data[(i % area) * 3 + Math.floor(i / area)]);
const image = new ort.Tensor('uint8', pixels, [1, 3, info.height, info.width]);

const { scores, boxes, labels } = await session.run({ image });
scores.data.forEach((score, i) => {
  if (score === 0) return; // no detection
  const label = Number(labels.data[i]), box = [...boxes.data.subarray(4 * i, 4 * i + 4)];
  console.log([about.classes?.[label] ?? label, score.toFixed(3), ...box.map(x => x.toFixed(1))].join('\t'));
});
