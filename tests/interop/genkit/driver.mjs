// The real Genkit as a process: a line of JSON in, a line of JSON out, in the order asked.
//
// A request is {"do": <verb>, "on": {"folder" or "url", "options"}, "with": <parameters>}; an answer
// is {"value": …} or {"error": {"name", "status", "message"}}. A URL is that of a server of ours.
//
// Usage: node driver.mjs <folder that holds node_modules>

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const resolver = createRequire(pathToFileURL(`${process.argv[2]}/package.json`))
const { genkit, FileSessionStore } = await import(pathToFileURL(resolver.resolve('genkit/beta')))

const { open } = await import('../../../clients/js/src/index.js')
const { SessionStore } = await import('../../../clients/js/src/genkit.js')

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// A tenant is who is signed in.
const snapshotPathPrefix = (given) => given?.context?.auth?.uid ?? 'global'

const stores = new Map()

function storeOf({ folder, url, options = {} }) {
  const key = JSON.stringify([folder ?? url, options])
  if (!stores.has(key)) {
    const store = url
      ? new SessionStore(open(url), options)
      : new FileSessionStore(folder, { snapshotPathPrefix, ...options })
    stores.set(key, store)
  }
  return stores.get(key)
}

const agents = new Map()

// An agent that repeats what it hears.
function agentOf(spec) {
  const key = spec.folder ?? spec.url
  if (!agents.has(key)) {
    const ai = genkit({})
    const model = ai.defineModel({ name: 'echo' }, async ({ messages }) => {
      const said = messages.at(-1).content[0].text
      const message = { role: 'model', content: [{ text: `echo: ${said}` }] }
      return { message, finishReason: 'stop' }
    })
    agents.set(key, ai.defineAgent({ name: 'parrot', model, store: storeOf(spec) }))
  }
  return agents.get(key)
}

const counted = (current) => ({
  ...current,
  state: { ...current.state, custom: { n: (current.state?.custom?.n ?? 0) + 1 } },
})

const watches = new Map()
const storms = new Map()

// Saves some snapshots again and again and reads them all, until it is told to stop.
async function storm(store, { ids, fill }, state) {
  while (!state.stopped) {
    for (const id of ids) {
      await store.saveSnapshot(id, (current) => ({ ...counted(current), by: 'node', fill }))
      state.saves += 1
    }
    for (const id of ids) {
      if (!(await store.getSnapshot({ snapshotId: id }))) throw new Error(`${id} is gone`)
      state.reads += 1
    }
    await pause(1)
  }
  return { saves: state.saves, reads: state.reads }
}

const verbs = {
  get: (store, opts) => store.getSnapshot(opts),

  save: (store, { snapshotId, snapshot, context }) =>
    store.saveSnapshot(snapshotId ?? undefined, () => snapshot, { context }),

  // Changes some fields of what is there.
  patch: (store, { snapshotId, fields, context }) =>
    store.saveSnapshot(snapshotId, (current) => ({ ...current, ...fields }), { context }),

  async increment(store, { snapshotId, times }) {
    for (let done = 0; done < times; done += 1) await store.saveSnapshot(snapshotId, counted)
  },

  async watch(store, { snapshotId, name, context }) {
    const seen = []
    const end = store.onSnapshotStateChange(snapshotId, (row) => seen.push(row), { context })
    watches.set(name, { seen, end })
  },

  // What a watch has seen, once there are so many.
  async seen(store, { name, count }) {
    const { seen } = watches.get(name)
    while (seen.length < count) await pause(5)
    return seen
  },

  async unwatch(store, { name }) {
    watches.get(name).end()
    watches.delete(name)
  },

  async startStorm(store, { name, ...parameters }) {
    const state = { stopped: false, saves: 0, reads: 0 }
    const done = storm(store, parameters, state)
    done.catch(() => {}) // told to whoever asks next
    storms.set(name, { state, done })
  },

  async watchStorm(store, { name, saves }) {
    const { state, done } = storms.get(name)
    while (state.saves < saves) await Promise.race([done, pause(1)])
    return state.saves
  },

  async stopStorm(store, { name }) {
    const { state, done } = storms.get(name)
    storms.delete(name)
    state.stopped = true
    return done
  },
}

const talks = {
  // An agent that is told each of these, in a session or from a snapshot on.
  async converse(agent, { prompts, ...init }) {
    const chat = agent.chat(init)
    for (const prompt of prompts) await chat.send(prompt)
    return chat.snapshotId
  },

  // A turn that goes on by itself; its snapshot once it has ended.
  async detach(agent, { prompt, ...init }) {
    const task = await agent.chat(init).detach(prompt)
    return task.wait()
  },

  abort: (agent, { snapshotId }) => agent.abort(snapshotId),
}

async function answer({ do: verb, on: spec, with: parameters }) {
  if (verb in talks) return talks[verb](agentOf(spec), parameters)
  return verbs[verb](storeOf(spec), parameters)
}

function told(error) {
  return { name: error.name, status: error.status ?? null, message: error.message }
}

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

// Genkit must not write where the answers go.
console.log = console.info = console.error = () => {}

say({ value: 'ready' })
for await (const line of createInterface({ input: process.stdin })) {
  try {
    say({ value: (await answer(JSON.parse(line))) ?? null })
  } catch (error) {
    say({ error: told(error) })
  }
}
process.exit(0)
