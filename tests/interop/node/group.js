// kafkajs: an idempotent producer, a group of two of which one leaves, transactions, the administrator.
//
//   node group.js HOST:PORT TOPIC GROUP MESSAGES
//
// One line per message that was consumed, "got VALUE"; then what else was found out, and "done".
const { CompressionTypes, Kafka, logLevel } = require('kafkajs')

const [servers, topic, group, count] = process.argv.slice(2)
const MESSAGES = Number(count)
const PARTITIONS = 4
const kafka = new Kafka({ clientId: 'interop', brokers: [servers], logLevel: logLevel.ERROR })

async function until(condition, what, limitMs = 60000) {
  const end = Date.now() + limitMs
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`it did not come: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

async function produce() {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (let at = 0; at < MESSAGES; at += 100) {
    const messages = []
    for (let number = at; number < Math.min(at + 100, MESSAGES); number++) {
      messages.push({ key: `k${number % 17}`, value: `${number}`, headers: { source: 'kafkajs' } })
    }
    await producer.send({ topic, messages, acks: -1, compression: CompressionTypes.GZIP })
  }
  await producer.disconnect()
}

async function transactions() {
  const producer = kafka.producer({ transactionalId: `${group}-tx`, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const [end, value] of [['abort', 'aborted'], ['commit', 'committed']]) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ value }] })
    await transaction[end]()
  }
  await producer.disconnect()
}

async function consume() {
  const seen = new Set()
  const members = []
  for (const name of ['a', 'b']) {
    const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 500, readUncommitted: false })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    let assigned = false
    consumer.on(consumer.events.GROUP_JOIN, () => { assigned = true })
    await consumer.run({
      eachMessage: async ({ message }) => {
        const value = message.value.toString()
        if (value !== 'committed' && message.headers.source.toString() !== 'kafkajs') throw new Error('headers')
        if (!seen.has(value)) console.log(`got ${value}`)
        seen.add(value)
      },
    })
    await until(() => assigned, `member ${name} joins`)
    members.push(consumer)
  }
  await until(() => seen.size >= MESSAGES / 2, 'half of the messages')
  await members[1].disconnect()
  await until(() => seen.size > MESSAGES, 'all messages')
  await members[0].disconnect()
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  const configEntries = [{ name: 'compression.type', value: 'lz4' }, { name: 'segment.ms', value: '3600000' }]
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1, configEntries }] })
  await produce()
  await transactions()
  await consume()
  const ends = await admin.fetchTopicOffsets(topic)
  const committed = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  const highs = new Map(ends.map(({ partition, high }) => [partition, Number(high)]))
  // What ends a transaction takes an offset too, and kafkajs commits behind the last message.
  for (const { partition, offset } of committed[0].partitions) {
    const behind = highs.get(partition) - Math.max(0, Number(offset))
    if (behind > 4) throw new Error(`partition ${partition} is ${behind} behind`)
  }
  const { groups } = await admin.describeGroups([group])
  console.log(`group ${groups[0].state}`)
  await admin.deleteGroups([group])
  await admin.deleteTopics({ topics: [topic] })
  await until(async () => !(await admin.listTopics()).includes(topic), 'the topic is gone')
  await admin.disconnect()
  console.log('done')
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
