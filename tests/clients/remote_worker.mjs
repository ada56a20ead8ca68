// A program with the Node.js client: `node remote_worker.mjs URL TOKEN OPTIONS`; see tasks.py.
import { appendFileSync, existsSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Discard, Retry, Worker } from "../../clients/node/pgjobs_worker.mjs";

const [url, token, options] = process.argv.slice(2);
const worker = new Worker(url, token, JSON.parse(options));
const TASKS = "tests.clients.tasks.";
const write = (folder, line) => appendFileSync(`${folder}/journal`, `${line}\n`);

worker.task(`${TASKS}note`, async (job, folder, text) => write(folder, text));

worker.task(`${TASKS}add`, (job, first, { second = 0 } = {}) => ({ sum: first + second }));

worker.task(`${TASKS}hold`, async (job, folder, text) => {
  write(folder, `start ${text} ${job.attempt}`);
  job.progress(1, 2, "at the gate");
  try {
    while (!existsSync(`${folder}/gate`)) {
      await sleep(10);
      job.check();
    }
  } catch (error) {
    write(folder, `cancelled ${text} ${job.attempt}: ${error.message}`);
    throw error;
  }
  write(folder, `end ${text} ${job.attempt}`);
  return job.attempt;
});

worker.task(`${TASKS}ignore`, async (job, folder, text) => {
  write(folder, `start ${text}`);
  await sleep(600_000);
});

worker.task(`${TASKS}fail`, (job, times) => {
  if (job.attempt <= times) throw Object.assign(new Error("not yet"), { name: "ValueError" });
  return job.attempt;
});

worker.task(`${TASKS}wait_and_see`, async (job) => {
  const cause = Object.assign(new Error("not yet"), { name: "ValueError" });
  if (job.attempt === 1) throw new Retry("later", { after: 0.1, cause });
  return job.attempt;
});

worker.task(`${TASKS}discard`, async () => {
  throw new Discard("never");
});

worker.task(`${TASKS}make_large`, async () => "x".repeat(3_000_000));

worker.task(`${TASKS}progress_last`, async (job) => {
  job.progress(2, 2, "printed");
});

worker.task(`${TASKS}progress_strangely`, async (job, folder) => {
  while (!existsSync(`${folder}/gate`)) {
    job.progress("half", null, "no\0thing");
    await sleep(10);
  }
});

worker.task(`${TASKS}fail_strangely`, async () => {
  throw new Error(`no\0thing ${"x".repeat(200_000)}`);
});

worker.task(`${TASKS}fail_silently`, async () => {
  throw Object.defineProperty({}, "message", {
    get() {
      throw new Error("no text");
    },
  });
});

worker.task(`${TASKS}ask_strangely`, async () => {
  throw new Retry("later", { after: 5n });
});

worker.task(`${TASKS}make_strange`, async () => 10n);

worker.task(`${TASKS}convert`, async (job, number) => {
  await sleep(50, null, { signal: job.signal });
  return { number, square: number * number };
});

console.log("ready");
await worker.run();
console.log("ended");
process.exit();
