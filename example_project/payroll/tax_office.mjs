// The tax office: another company's program, which knows the shop's HTTP API and nothing else.
//
//     URL=http://127.0.0.1:8000/pgjobs/api/ TOKEN=pgj_... node tax_office.mjs

import { setTimeout as sleep } from "node:timers/promises";
import { Discard, Worker } from "../../clients/node/pgjobs_worker.mjs";

const worker = new Worker(process.env.URL, process.env.TOKEN, { name: "tax office", slots: 20 });

worker.task("example_project.payroll.paying.deduct_taxes", async (job, pay) => {
  if (!Number.isInteger(pay.amount)) throw new Discard("an amount is a number of cents");
  await sleep(10, null, { signal: job.signal });
  return { ...pay, amount: Math.floor((pay.amount * 4) / 5) };
});

await worker.run();
