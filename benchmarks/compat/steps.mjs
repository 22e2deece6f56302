// The FileStorage of the Strands SDK for TypeScript, told what to do a line of JSON at a time.
//
// It measures itself, so that the way to this process does not count. An answer is what a call took
// in seconds, wall and CPU, and the bytes that the process has written by now.
//
// Usage: node steps.mjs <folder that holds node_modules>

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const resolver = createRequire(pathToFileURL(`${process.argv[2]}/package.json`))
const { FileStorage } = await import(pathToFileURL(resolver.resolve('@strands-agents/sdk')))

const open = new Map()

const verbs = {
  open: ({ name, folder, location, messages }) => {
    open.set(name, { storage: new FileStorage(folder), location, messages })
  },
  // Into history, and as the latest, as an agent does after each of its turns.
  save: async ({ name, id, count, createdAt }) => {
    const { storage, location, messages } = open.get(name)
    const data = { messages: messages.slice(0, count), state: {} }
    const snapshot = { scope: 'agent', schemaVersion: '1.0', createdAt, data, appData: {} }
    await storage.saveSnapshot({ location, snapshotId: id, isLatest: false, snapshot })
    await storage.saveSnapshot({ location, snapshotId: 'latest', isLatest: true, snapshot })
  },
  load: async ({ name }) => {
    const { storage, location } = open.get(name)
    const found = await storage.loadSnapshot({ location })
    return found.data.messages.length
  },
  list: async ({ name }) => {
    const { storage, location } = open.get(name)
    const found = await storage.listSnapshotIds({ location })
    return found.length
  },
}

function written() {
  try {
    return Number(/wchar: (\d+)/.exec(readFileSync('/proc/self/io', 'ascii'))[1])
  } catch {
    return 0
  }
}

const read = (path) => JSON.parse(readFileSync(path, 'utf8'))
const sdk = read(`${process.argv[2]}/node_modules/@strands-agents/sdk/package.json`)
process.stdout.write(`${JSON.stringify([`Node ${process.versions.node}`, `SDK ${sdk.version}`])}\n`)

for await (const line of createInterface({ input: process.stdin })) {
  const { do: verb, ...given } = JSON.parse(line)
  const before = written()
  const cpu = process.cpuUsage()
  const start = performance.now()
  const found = await verbs[verb](given)
  const wall = (performance.now() - start) / 1000
  const spent = process.cpuUsage(cpu)
  const answer = { wall, cpu: (spent.user + spent.system) / 1e6, written: written() - before, found }
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
