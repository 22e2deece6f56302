// An agent of the Strands SDK for TypeScript that is given the answer it waits for.
//
// Usage: node answer.mjs <folder that holds node_modules> <folder> <session> <agent> <answer>
// Prints the ids of what it waited for, and then its conversation, as JSON.

import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [packages, folder, sessionId, agentId, response] = process.argv.slice(2)
const resolver = createRequire(pathToFileURL(`${packages}/package.json`))
const load = (name) => import(pathToFileURL(resolver.resolve(name)))

const { Agent, Model, SessionManager, tool } = await load('@strands-agents/sdk')
const { LocalFileStorage } = await load('@strands-agents/sdk/storage')

class Done extends Model {
  getConfig() {
    return { modelId: 'done' }
  }

  updateConfig() {}

  async *stream() {
    yield { type: 'modelMessageStartEvent', role: 'assistant' }
    yield { type: 'modelContentBlockStartEvent' }
    yield { type: 'modelContentBlockDeltaEvent', delta: { type: 'textDelta', text: 'done' } }
    yield { type: 'modelContentBlockStopEvent' }
    yield { type: 'modelMessageStopEvent', stopReason: 'endTurn' }
  }
}

const confirm = tool({
  name: 'confirm',
  description: 'asks a person',
  inputSchema: { type: 'object', properties: {} },
  callback: (input, context) => `approved: ${context.interrupt({ name: 'approve' })}`,
})

const sessionManager = new SessionManager({ sessionId, storage: new LocalFileStorage(folder) })
const common = { id: agentId, model: new Done(), tools: [confirm], printer: false }
const before = new Agent(common)
await sessionManager.restoreSnapshot({ target: before })
const state = before.takeSnapshot({ preset: 'session' }).data
const ids = Object.keys(state.interrupts.interrupts)

const agent = new Agent({ ...common, sessionManager })
await agent.invoke(ids.map((interruptId) => ({ interruptResponse: { interruptId, response } })))
const { messages } = agent.takeSnapshot({ preset: 'session' }).data
process.stdout.write(JSON.stringify({ ids, messages }))
