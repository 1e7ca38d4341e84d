// Members of consumer groups that are KafkaJS. The lines that it speaks: ../members/__init__.py.
//
// KafkaJS calls the application, so a member knows `make`, `run`, `stop` and `close` only. It joins when it is
// told to run. Settings of its own: retry.at=VALUE and reject.at=VALUE name messages that it cannot handle, the
// first only at its first delivery. It says so before it commits past them.
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
    this.settings = settings
    this.producer = kafka.producer()
    this.held = []
    this.interval = Number(settings['auto.commit.interval.ms'] ?? 100)
    await this.consumer.connect()
    await this.producer.connect()
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
    const { offset, timestamp, value, headers } = message
    const attempt = (headers['qmq-attempt'] ?? '1').toString()
    write(this.name, 'record', topic, offset, timestamp, value.toString(), attempt, Date.now())
    await this.complain(topic, message, attempt)
    if (this.pause >= 1) await new Promise(resolve => setTimeout(resolve, this.pause))
  }

  async complain(topic, { offset, value }, attempt) {
    const wanted = { retry: this.settings['retry.at'], reject: this.settings['reject.at'] }
    const verdict = Object.keys(wanted).find(each => wanted[each] === value.toString())
    if (!verdict || (verdict === 'retry' && attempt !== '1')) return
    const headers = {
      'qmq-retry-group': this.settings['group.id'],
      'qmq-retry-subject': topic,
      'qmq-retry-offset': offset,
      'qmq-retry-action': verdict,
      'qmq-retry-reason': 'it failed',
    }
    const after = this.settings['retry.after.ms']
    if (after && verdict === 'retry') headers['qmq-retry-after-ms'] = after
    await this.producer.send({ topic: '__kumquat_retry', messages: [{ value: '', headers }] })
  }

  async stop() {
    this.resumed = new Promise(resolve => (this.resume = resolve))
  }

  async close() {
    this.resume()
    await this.consumer.disconnect()
    await this.producer.disconnect()
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
