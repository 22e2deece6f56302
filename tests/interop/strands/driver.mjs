// The real Strands SDK as a process: a line of JSON in, a line of JSON out, in the order asked.
//
// A request is {"do": <verb>, "on": <storage>, "with": <parameters>}; an answer is {"value": …} or
// {"error": {"name", "message", "cause"}}. The parameters are handed to the SDK as they are.
//
// Usage: node driver.mjs <folder that holds node_modules>

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const resolver = createRequire(pathToFileURL(`${process.argv[2]}/package.json`))
const load = (name) => import(pathToFileURL(resolver.resolve(name)))

const { Agent, FileStorage, Graph, Model, SessionManager, tool } = await load('@strands-agents/sdk')
const { S3Storage: SnapshotS3Storage } = await load('@strands-agents/sdk/session/s3-storage')
const { LocalFileStorage, S3Storage } = await load('@strands-agents/sdk/storage')
const { S3Client } = await load('@aws-sdk/client-s3')
const { open } = await import('../../../clients/js/src/index.js')
const { StoreStorage } = await import('../../../clients/js/src/strands.js')

const clients = new Map()

function s3Client({ endpoint, region, accessKeyId, secretAccessKey }) {
  if (!clients.has(endpoint)) {
    const credentials = { accessKeyId, secretAccessKey }
    clients.set(endpoint, new S3Client({ endpoint, region, credentials, forcePathStyle: true }))
  }
  return clients.get(endpoint)
}

// What the session manager is configured with. "classic" storages write snapshots below the folder
// or prefix itself. "unified" ones keep any bytes; the session manager puts its own below
// `session/`, unless it is given a namespace. "limpet" is a server of ours.
function storageOf({ family, folder, namespace, s3, url, retryMs }) {
  if (family === 'limpet') return { snapshot: new StoreStorage(open(url, { retryMs })) }
  if (family === 'classic') {
    const snapshot = s3
      ? new SnapshotS3Storage({ bucket: s3.bucket, prefix: s3.prefix, s3Client: s3Client(s3) })
      : new FileStorage(folder)
    return { snapshot }
  }
  const whole = s3
    ? new S3Storage(s3.bucket, { prefix: s3.prefix, s3Client: s3Client(s3) })
    : new LocalFileStorage(folder)
  return namespace ? whole.namespace(namespace) : whole
}

// The adapter over a unified storage is not exported: a session manager makes it.
function snapshotsOf(spec) {
  const manager = new SessionManager({ sessionId: 'unused', storage: storageOf(spec) })
  return manager._snapshotStorage
}

class Echo extends Model {
  getConfig() {
    return { modelId: 'echo' }
  }

  updateConfig() {}

  // Answers "add <a> <b>" by the tool, anything else by what was said.
  async *stream(messages) {
    const last = messages.at(-1).content[0]
    const sum = last.type === 'textBlock' && /^add (\d+) (\d+)$/.exec(last.text)
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    if (sum) {
      const start = { type: 'toolUseStart', name: 'add', toolUseId: `use-${messages.length}` }
      const input = JSON.stringify({ b: Number(sum[2]), a: Number(sum[1]) })
      yield { type: 'modelContentBlockStartEvent', start }
      yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'toolUseInputDelta', input } }
    } else {
      const text = last.type === 'textBlock' ? `echo: ${last.text}` : 'the tool has spoken'
      yield { type: 'modelContentBlockStartEvent' }
      yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'textDelta', text } }
    }
    yield { type: 'modelContentBlockStopEvent' }
    yield { type: 'modelMessageStopEvent', stopReason: sum ? 'toolUse' : 'endTurn' }
    const usage = { inputTokens: 10, outputTokens: 5, totalTokens: 15 }
    yield { type: 'modelMetadataEvent', usage, metrics: { latencyMs: 1 } }
  }
}

const add = tool({
  name: 'add',
  description: 'adds two numbers',
  inputSchema: {
    type: 'object',
    properties: { a: { type: 'number' }, b: { type: 'number' } },
    required: ['a', 'b'],
  },
  callback: ({ a, b }) => ({ sum: a + b }),
})

function agentOf({ agentId = 'agent', appState = {}, sessionManager }) {
  return new Agent({
    id: agentId,
    model: new Echo(),
    tools: [add],
    systemPrompt: 'You repeat what you hear.',
    printer: false,
    appState,
    ...(sessionManager && { sessionManager }),
  })
}

function shown(agent) {
  return JSON.parse(JSON.stringify(agent.takeSnapshot({ preset: 'session' }).data))
}

const storms = new Map()

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// Saves latest again and again until it is told to stop: some at once, then a moment of thought.
async function storm(storage, { location, snapshot }, state) {
  while (!state.stopped) {
    state.calls += 1
    const data = { ...snapshot.data, turn: state.calls }
    const given = { location, snapshotId: 'latest', isLatest: true, snapshot: { ...snapshot, data } }
    await storage.saveSnapshot(given)
    await pause(state.calls % 4 ? 0 : 100)
  }
  return state.calls
}

const verbs = {
  // An agent that is invoked with each prompt in turn, and what it then knows.
  async converse(spec, { sessionId, prompts, history = false, ...rest }) {
    const sessionManager = new SessionManager({
      sessionId,
      storage: storageOf(spec),
      snapshotTrigger: () => history,
    })
    const agent = agentOf({ ...rest, sessionManager })
    for (const prompt of prompts) await agent.invoke(prompt)
    return shown(agent)
  },

  // What a new agent knows once a snapshot is restored into it, or null if there was none.
  async restore(spec, { sessionId, snapshotId, ...rest }) {
    const manager = new SessionManager({ sessionId, storage: storageOf(spec) })
    const agent = agentOf(rest)
    const found = await manager.restoreSnapshot({
      target: agent,
      ...(snapshotId !== undefined && { snapshotId }),
    })
    return found ? shown(agent) : null
  },

  // Two agents in a graph, one after the other.
  async orchestrate(spec, { sessionId, graphId, prompt }) {
    const graph = new Graph({
      id: graphId,
      nodes: [agentOf({ agentId: 'first' }), agentOf({ agentId: 'second' })],
      edges: [['first', 'second']],
      sessionManager: new SessionManager({ sessionId, storage: storageOf(spec) }),
    })
    const result = await graph.invoke(prompt)
    return { status: result.status, nodes: result.results.map((node) => node.nodeId) }
  },

  async startStorm(spec, parameters) {
    const state = { stopped: false, calls: 0 }
    const done = storm(snapshotsOf(spec), parameters, state)
    done.catch(() => {}) // told to whoever asks next
    storms.set(parameters.name, { state, done })
  },

  // How many calls a storm has begun so far, once there are at least so many.
  async watchStorm(spec, { name, calls }) {
    const { state, done } = storms.get(name)
    while (state.calls < calls) {
      await Promise.race([done, pause(1)])
    }
    return state.calls
  },

  async stopStorm(spec, { name }) {
    const { state, done } = storms.get(name)
    storms.delete(name)
    state.stopped = true
    return done
  },
}

async function answer({ do: verb, on: spec, with: parameters }) {
  if (verb in verbs) return verbs[verb](spec, parameters)
  return snapshotsOf(spec)[verb](parameters)
}

function told(error) {
  const cause = error.cause && `${error.cause.name}: ${error.cause.message}`
  return { name: error.name, message: error.message, cause: cause ?? null }
}

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

// The SDK must not write where the answers go.
console.log = console.info = console.error

say({ value: 'ready' })
for await (const line of createInterface({ input: process.stdin })) {
  try {
    say({ value: (await answer(JSON.parse(line))) ?? null })
  } catch (error) {
    say({ error: told(error) })
  }
}
