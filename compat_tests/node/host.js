// Members of consumer groups that are KafkaJS. The lines that it speaks: ../members/__init__.py.
//
// KafkaJS calls the application, so a member knows `make`, `run`, `stop` and `close` only. It joins when it is
// told to run.
'use strict'

const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const members = new Map()

function write(...fields) {
  process.stdout.write(fields.map(field => String(field).replace(/\s+/g, ' ')).join('\t') + '\n')
}

class Member {
  constructor(name) {
    this.name = name
    this.started = false
    this.pause = 0
    this.resumed = Promise.resolve()
    this.resume = () => {}
    this.queue = Promise.resolve()
  }

  hear(number, command, ...fields) {
    this.queue = this.queue.then(async () => {
      try {
        await this[command](...fields)
        write(this.name, 'done', number)
      } catch (error) {
        write(this.name, 'failed', number, error.name, error.message)
      }
    })
  }

  async make(variant, ...pairs) {
    const settings = Object.fromEntries(pairs.map(pair => pair.split(/=(.*)/s)))
    const kafka = new Kafka({
      clientId: settings['client.id'] || undefined,
      brokers: [settings['bootstrap.servers']],
      logLevel: logLevel.NOTHING,
    })
    this.consumer = kafka.consumer({
      groupId: settings['group.id'],
      sessionTimeout: Number(settings['session.timeout.ms'] ?? 30000),
      rebalanceTimeout: 60000,
      heartbeatInterval: Number(settings['heartbeat.interval.ms'] ?? 3000),
      maxWaitTimeInMs: 500,
    })
    this.consumer.on('consumer.group_join', ({ payload }) => {
      write(this.name, 'revoked', ...this.held)
      this.held = Object.keys(payload.memberAssignment)
      write(this.name, 'assigned', ...this.held)
    })
    this.consumer.on('consumer.crash', ({ payload }) => {
      write(this.name, 'broken', payload.error.name, payload.error.message)
    })
    this.held = []
    this.interval = Number(settings['auto.commit.interval.ms'] ?? 100)
    await this.consumer.connect()
    const fromBeginning = settings['auto.offset.reset'] !== 'latest'
    await this.consumer.subscribe({ topics: settings.topics.split(','), fromBeginning })
  }

  async run(commit, milliseconds) {
    this.pause = Number(milliseconds)
    this.resume()
    if (!this.started) {
      this.started = true
      const eachMessage = message => this.handle(message)
      await this.consumer.run({ autoCommitInterval: this.interval, eachMessage })
    }
  }

  async handle({ topic, message }) {
    await this.resumed
    write(this.name, 'polled')
    write(this.name, 'record', topic, message.offset, message.timestamp, message.value.toString())
    if (this.pause >= 1) await new Promise(resolve => setTimeout(resolve, this.pause))
  }

  async stop() {
    this.resumed = new Promise(resolve => (this.resume = resolve))
  }

  async close() {
    this.resume()
    await this.consumer.disconnect()
  }
}

readline
  .createInterface({ input: process.stdin })
  .on('line', line => {
    const [name, ...command] = line.split('\t')
    if (!members.has(name)) members.set(name, new Member(name))
    members.get(name).hear(...command)
  })
  .on('close', () => process.exit(0))
