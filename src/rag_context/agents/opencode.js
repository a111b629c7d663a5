// Written by `rag-context install`; `rag-context uninstall` removes it.
// It asks the memory before a prompt is sent, and puts the answer behind the prompt in what is sent: what OpenCode
// stores stays as it is. Nothing here throws, and no call takes longer than a second.
import { spawn } from "node:child_process"

const COMMANDS = "COMMANDS"
const LIMIT_MS = 1000

export const RagContext = async ({ client, directory }) => {
  const shown = new Map() // message -> what was shown with it: the same text each time, so that caches hold
  const begun = new Set()
  const ran = (event, payload) =>
    new Promise((resolve) => {
      const words = COMMANDS[event]
      if (!words) return resolve("")
      let text = ""
      try {
        const child = spawn(words[0], words.slice(1), { cwd: directory, stdio: ["pipe", "pipe", "ignore"] })
        const timer = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS)
        child.on("error", () => resolve(""))
        child.on("close", () => {
          clearTimeout(timer)
          resolve(text)
        })
        child.stdout.on("data", (data) => (text += data))
        child.stdin.on("error", () => {})
        child.stdin.end(JSON.stringify({ cwd: directory, ...payload }))
      } catch {
        resolve("")
      }
    })
  const asked = async (event, payload) => {
    try {
      const answer = JSON.parse((await ran(event, payload)) || "{}")
      return answer.hookSpecificOutput?.additionalContext ?? answer.additionalContext ?? ""
    } catch {
      return ""
    }
  }
  const isSubagent = async (id) => {
    try {
      return Boolean((await client.session.get({ path: { id } })).data?.parentID)
    } catch {
      return true
    }
  }
  return {
    "chat.message": async (input, output) => {
      const session_id = input.sessionID
      const prompt = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text).join("\n")
      if (!prompt || (await isSubagent(session_id))) return
      const start = begun.has(session_id) ? "" : await asked("session-start", { session_id, source: "startup" })
      begun.add(session_id)
      const found = await asked("prompt", { session_id, prompt })
      const text = [start, found].filter(Boolean).join("\n\n")
      if (text) shown.set(output.message.id, text)
    },
    "experimental.chat.messages.transform": async (_input, output) => {
      for (const { info, parts } of output.messages) {
        const text = shown.get(info.id)
        if (text) parts.push({ id: `${info.id}-rag-context`, messageID: info.id, sessionID: info.sessionID, type: "text", synthetic: true, text })
      }
    },
    "tool.execute.after": async (input, output) => {
      if (!["read", "edit", "write", "bash"].includes(input.tool)) return
      const text = await asked("action", { session_id: input.sessionID, tool_name: input.tool, tool_input: input.args ?? {} })
      if (text) output.output = `${output.output}\n\n${text}`
    },
    "experimental.session.compacting": async (input) => {
      await ran("compact", { session_id: input.sessionID })
      begun.delete(input.sessionID)
    },
    event: async ({ event }) => {
      if (event.type === "session.idle") await ran("stop", { session_id: event.properties.sessionID })
    },
  }
}
