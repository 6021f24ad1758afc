# A webhook receiver: a Rack application that also runs on its own:
#
#   WEBHOOK_SECRET=whsec_… ruby receiver.rb
require "json"
require "openssl"
require "set"
require "socket"
require "stringio"

# During a rotation there are two secrets, separated by a space.
SECRETS = ENV.fetch("WEBHOOK_SECRET", "").split
abort "set WEBHOOK_SECRET to the endpoint's secret" if SECRETS.empty?

TOLERANCE = 300 # seconds
MAX_BODY = (1 << 20) + (64 << 10) # bodies have at most 1 MiB

# Accepted IDs and queued deliveries. In production, use a database table with the
# ID as its primary key.
LOCK = Mutex.new
SEEN = Set.new
TODO = Queue.new

def signed?(timestamp, body, signature)
  SECRETS.any? do |secret|
    expected = OpenSSL::HMAC.hexdigest("SHA256", secret, "#{timestamp}.".b + body)
    # fixed_length_secure_compare raises when the lengths differ.
    signature.bytesize == expected.bytesize && OpenSSL.fixed_length_secure_compare(signature, expected)
  end
end

# Stores a delivery and returns the status of the response.
def receive(env)
  return 405 unless env["REQUEST_METHOD"] == "POST"

  # The signature covers the raw bytes, so read them before you parse anything.
  body = env["rack.input"]&.read(MAX_BODY + 1).to_s.b
  return 413 if body.bytesize > MAX_BODY

  timestamp = env["HTTP_SERVICE_TIMESTAMP"].to_s
  return 400 unless timestamp.match?(/\A[0-9]{1,19}\z/)
  return 400 if (Time.now.to_i - timestamp.to_i).abs > TOLERANCE
  return 401 unless signed?(timestamp, body, env["HTTP_SERVICE_SIGNATURE"].to_s)

  id = env["HTTP_SERVICE_EVENT_ID"].to_s
  event = JSON.parse(body.force_encoding("UTF-8"))
  return 400 if id.empty? || !event.is_a?(Hash) || !event.key?("type")

  LOCK.synchronize do
    TODO << [id, event] if SEEN.add?(id) # acknowledge duplicates and do nothing
  end
  204
rescue JSON::ParserError
  400
end

# For Puma and other servers: put `run RECEIVER` into config.ru and leave out the rest of the file.
RECEIVER = ->(env) { [receive(env), {}, []] }

# Processes deliveries after they were acknowledged.
Thread.new do
  loop do
    id, event = TODO.pop
    puts "processed #{id} #{event["type"]}"
  end
end

# Ruby has no HTTP server of its own, so here is a minimal one.
def serve(client)
  client.binmode
  env = { "REQUEST_METHOD" => client.gets("\r\n", 8192).to_s.split.first }
  while (line = client.gets("\r\n", 8192)) && line != "\r\n"
    name, value = line.split(":", 2)
    env["HTTP_#{name.upcase.tr("-", "_")}"] = value.to_s.strip
  end
  length = env["HTTP_CONTENT_LENGTH"].to_i.clamp(0, MAX_BODY + 1)
  env["rack.input"] = StringIO.new(client.read(length).to_s)
  status, = RECEIVER.call(env)
  client.write("HTTP/1.1 #{status} Response\r\nConnection: close\r\n#{"Content-Length: 0\r\n" unless status == 204}\r\n")
ensure
  client.close
end

if $PROGRAM_NAME == __FILE__
  $stdout.sync = true
  server = TCPServer.new("127.0.0.1", Integer(ENV.fetch("PORT", "3000")))
  puts "listening on http://127.0.0.1:#{server.addr[1]}/"
  loop { Thread.new(server.accept) { |client| serve(client) } }
end
