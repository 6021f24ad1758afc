# A receiver of webhooks, as a Rack application that also runs alone:
#
#   WEBHOOK_SECRET=whsec_… ruby receiver.rb
require "json"
require "openssl"
require "set"
require "socket"
require "stringio"

# While a secret is rotated there are two, separated by a space.
SECRETS = ENV.fetch("WEBHOOK_SECRET", "").split
abort "set WEBHOOK_SECRET to the endpoint's secret" if SECRETS.empty?

TOLERANCE = 300 # seconds
MAX_BODY = (1 << 20) + (64 << 10) # 1 MiB is sent at most

# What was taken in, and what is still to do. Both forget when the program
# ends: a real receiver has a database table instead, with the id unique.
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

# Takes a delivery in and returns the status of the answer.
def receive(env)
  return 405 unless env["REQUEST_METHOD"] == "POST"

  # The signature is over the bytes as they came, so they are not parsed yet.
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
    TODO << [id, event] if SEEN.add?(id) # else it came again: acknowledge it again, and do nothing
  end
  204
rescue JSON::ParserError
  400
end

# For Puma or another server: `run RECEIVER` in config.ru, and the last part below is not needed.
RECEIVER = ->(env) { [receive(env), {}, []] }

# Does what takes time, after the sender has its answer.
Thread.new do
  loop do
    id, event = TODO.pop
    puts "processed #{id} #{event["type"]}"
  end
end

# Ruby brings no HTTP server, so here is as much of one as a delivery needs.
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
  client.write("HTTP/1.1 #{status} Answer\r\nConnection: close\r\n#{"Content-Length: 0\r\n" unless status == 204}\r\n")
ensure
  client.close
end

if $PROGRAM_NAME == __FILE__
  $stdout.sync = true
  server = TCPServer.new("127.0.0.1", Integer(ENV.fetch("PORT", "3000")))
  puts "listening on http://127.0.0.1:#{server.addr[1]}/"
  loop { Thread.new(server.accept) { |client| serve(client) } }
end
