// Writes tokens.json, random.jsonl, codepoints.txt and variants.json: what the reference
// tokenizer (Hugging Face tokenizers, Rust, through its node binding) gives.
//
//	npm install --prefix DIR @anush008/tokenizers@0.6.0
//	NODE_PATH=DIR/node_modules node make/tokens.mjs MODEL_DIR   (in testdata)
//
// MODEL_DIR holds the tokenizer.json of all-MiniLM-L6-v2. Run it after tiny.py and before
// vectors.py. Truncation and padding are off, and added_tokens is emptied, so that "[CLS]"
// in a text stays text; the post-processor still adds the real ones. Everything is seeded:
// a second run writes the same bytes.
import { createRequire } from 'node:module'
import { createHash } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'

const require = createRequire(import.meta.url)
const { Tokenizer } = require(require.resolve('@anush008/tokenizers', { paths: (process.env.NODE_PATH || '.').split(path.delimiter) }))

const modelDir = process.argv[2]
const plain = (json) => Tokenizer.fromString(JSON.stringify({ ...json, truncation: null, padding: null, added_tokens: [] }))
const read = (file) => JSON.parse(fs.readFileSync(file, 'utf8'))
const real = plain(read(path.join(modelDir, 'tokenizer.json')))
const ids = async (t, texts) => (await t.encodeBatch(texts)).map((e) => e.getIds())
const ascii = (s) => s.replace(/[^\x20-\x7e]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'))

// mulberry32: a small seeded generator.
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

const cp = String.fromCodePoint
const range = (a, b) => Array.from({ length: b - a + 1 }, (_, i) => cp(a + i))

// --- tokens.json: texts by subject ---

const long = `Creates a pull request in a repository. The title and the body are given as Markdown; the head branch must exist
and must have commits that the base branch does not have. Reviewers, labels, assignees and a milestone can be set at once. `
const groups = {
  vectors: [
    // The three sentences of the model card come first.
    'The weather is lovely today.', "It's so sunny outside!", 'He drove to the stadium.',
    '', 'issue', 'create issue', 'send an email to the whole team', 'what files changed since yesterday?', 'book a flight to Lisbon next Friday',
    'github: create_issue. Create a new issue in a GitHub repository. Parameters: owner, repo, title, body, assignees, labels, milestone.',
    'filesystem: read_text_file. Read the complete contents of a file from the file system as text. Handles various text encodings and fails with a clear message when the file cannot be read.',
    'slack: post_message. Posts a message to a channel or a thread. Parameters: channel_id, text, thread_ts, unfurl_links.',
    'postgres: query. Run a read-only SQL query and return the rows as JSON.',
    'browser_take_screenshot: Take a screenshot of the current page, or of one element when a reference is given.',
    'getWeatherForecast(latitude: number, longitude: number, days?: integer = 7)',
    '{"type":"object","properties":{"path":{"type":"string"},"recursive":{"type":"boolean","default":false}},"required":["path"]}',
    'SELECT id, name FROM users WHERE created_at > now() - interval \'7 days\' ORDER BY name LIMIT 10;',
    'Erstelle eine Rechnung für den Kunden und schicke sie per E-Mail; die Größe der Anhänge ist beschränkt.',
    'Récupère les événements du calendrier où l’état est « confirmé ».',
    'Создать новую задачу в проекте и назначить исполнителя', '在日历中创建一个新的会议并邀请参与者', '新しいイシューを作成してラベルを付ける',
    '새로운 이슈를 만들고 담당자를 지정합니다', 'إنشاء تذكرة جديدة وإرسال إشعار إلى الفريق', 'नया कार्य बनाएं और टीम को सूचित करें', 'สร้างงานใหม่และแจ้งทีม',
    'Δημιουργία νέου ζητήματος ΣΤΟ ΕΡΓΟ', '🚀 deploy to production 👩‍💻 ✅', long.replace(/\n/g, ' ').repeat(8), 'a '.repeat(300),
  ],
  'tool text': [
    'Create a new issue in a GitHub repository', 'List all open pull requests, sorted by most recently updated', 'Search for code across all of the repositories you can see',
    'Get the current weather for a given location (latitude/longitude)', 'Reads the full content of one or several files simultaneously; fails softly per file',
    'Deletes the record permanently. This cannot be undone!', 'Returns a list of all columns, their types, and constraints', "Translates text into the user's preferred language",
    'Convert a PDF to Markdown, keeping tables & images', 'Run a JavaScript snippet in the page and return the result', 'Fetches a URL and extracts its contents as markdown',
    'Add observations to existing entities in the knowledge graph', 'Mutates Kubernetes deployments (scale, restart, rollback) within a namespace',
    'e.g. "what is on my calendar tomorrow?"', 'Sends an SMS/MMS through Twilio; +1-555-0100 style numbers only', 'DEPRECATED: use `list_items_v2` instead.',
    'Options:\n  - depth: how deep to go (default: 3)\n  - follow: follow symlinks\n', 'Use when the user asks about 24h price change, OHLCV candles or order books',
    'Supports OAuth2, OIDC, SAML 2.0 & mTLS', 'antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis', 'unbelievably overengineered retokenization',
    'the quick brown fox jumps over the lazy dog', 'don\'t can\'t won\'t it\'s o\'clock rock\'n\'roll', 'mother-in-law state-of-the-art re-index co-op',
    'Parameters: owner (string, required), repo (string, required), per_page (integer, 1..100)',
  ],
  names: [
    'create_issue', 'createIssue', 'CreateIssue', 'CREATE_ISSUE', 'create-issue', 'create.issue', 'github.create_issue', 'github__create_issue', 'mcp__proxy__retrieve_tools',
    'getHTTPResponseCode', 'parseXMLFile2JSON', 'listS3Buckets', 'ec2DescribeInstances', 'oauth2_token_v3', '_private__name_', 'camelCaseWithANumber42AndMore', 'snake_case_with_a_number_42',
    'kebab-case-tool-name', 'SCREAMING_SNAKE', 'x', 'A', 'iPhone', 'macOS', 'IPv6', 'C++', 'C#', 'F#', '.NET', 'Node.js', 'k8s', 'i18n', 'utf-8', 'SHA-256', 'base64url',
    'server/tool@1.2.3', 'notion-API_post_search', 'puppeteer_navigate', 'sequentialthinking', 'tavily-search', 'kubectl_get', 'read_graph',
  ],
  accents: [
    'café', 'cafe\u0301', 'naïve façade', 'nai\u0308ve fac\u0327ade', 'Ångström', 'A\u030angstro\u0308m', '\u212bngström', 'Übergröße', 'Crème Brûlée', 'Zażółć gęślą jaźń', 'Příliš žluťoučký kůň',
    'Việt Nam', 'Tiếng Việt có dấu', 'Tie\u0302\u0301ng Vie\u0323\u0302t', 'ǖ ǘ ǚ ǜ', 'ḝ', 'e\u0301\u0302\u0303\u0304\u0305', '\u0301', '\u0301\u0302', 'a \u0301 b', 'ø đ ł ħ ŧ æ œ ð þ ŋ', 'São Paulo', 'İstanbul', 'ISPARTA ısparta', 'Iğdır',
    'ñandú', 'piñata', 'Dvořák', 'Čeština', 'Māori', 'Hawaiʻi', 'Łódź', 'Ørsted', 'Þórr', 'Reykjavík', '\u0344', '\u1e9b\u0323', '\u1e9b\u0323\u0307', 'q\u0307\u0323', 'q\u0323\u0307',
  ],
  case: [
    'Straße STRASSE straẞe', 'ὈΔΥΣΣΕΎΣ Ὀδυσσεύς', 'ΣΑΣ σας ΣΑΣ.', 'ΑΣ ΑΣΑ Σ Σ1 ΑΣ\u0301', 'ſtraſſe', 'ﬁnd ﬂow oﬃce ﬀ ﬃ ﬄ ﬅ ﬆ', 'Ǆ ǅ ǆ Ǉ ǈ ǉ Ǌ', 'ŉ ǰ ΐ ΰ և', 'Ⅷ ⅷ Ⓐ ⓐ', 'ＦＵＬＬ ｗｉｄｔｈ １２３ ！？', 'K Å Ω', 'ᾳ ᾼ ῼ', '𝐇𝐞𝐥𝐥𝐨 𝓦𝓸𝓻𝓵𝓭', '𐐀𐐨',
    'ᏣᎳᎩ ꮳꮃꭹ', 'Ა ა', 'Ω Ω', 'İ i̇ I ı', 'HELLO world HeLLo', 'ϴ θ ϑ', 'ẞ ß SS',
  ],
  cjk: [
    '创建一个新的问题', '創建新問題', '日本語のテキスト', 'ツール検索', 'ﾂｰﾙ ｹﾝｻｸ', 'がぎぐげご', 'か\u3099き\u3099', 'パピプペポ', 'ハ\u309aヒ\u309a', 'ゟヿ', '東京タワーへ行く', '𠀀𠀁𠂉', '𪚥𫝀𫠝', '㐀㐁䶵', '豈更車', '\uf900a\ufa6a', '丽丸乁', '龥龦鿿', '〇', '々〆〤',
    'a中b国c', '中文English混排123', '「括弧」、句点。', '，。！？；：', '㈱㍿㋿', '㎏㍑', '\u3000全角\u3000空白\u3000', '⺀⻳⼀⿕', '⿰亻尔', '𰀀𱍊', '𲎯', 'ㄅㄆㄇ', '臺灣', '〜～', '・ー', '一二三四五',
  ],
  hangul: ['새로운 이슈', '한국어', '한국어', '각', '각', '가', 'ㄱㄴㄷ ㅏㅑ', 'ᄀ', 'ᅡ', 'ᆨ', '각ᆨ', '각', 'ꥠힰ', '힣', '검색도구API', '서버에서 도구를 찾습니다', 'ﾡﾢ', 'ᅟᅠ', 'ㅤ'],
  scripts: [
    'Привет, мир', 'Ёжик и йод', 'Е\u0308жик и\u0306', 'Щука ЇЖАК Ґанок', 'ўзбек', 'Ѣ ѣ Ѳ', '\u0483\u0488', 'Добавить файл', 'Қазақ тілі', 'مرحبا بالعالم', 'مُحَمَّد', 'أإآؤئ', 'لا ﻻ ﷲ', 'پارسی گچ', 'می\u200cخواهم', '١٢٣ ۱۲۳', '؟ ، ؛', 'شָׁלום', 'שלום עולם', 'שׁ', 'בְּרֵאשִׁית',
    'नमस्ते दुनिया', 'क़ख़ग़', 'क\u093cख\u093c', 'हिन्दी में खोज', '१२३', '।॥', 'বাংলা ভাষা', 'ো', 'তো', 'தமிழ் மொழி', 'ொ', 'తెలుగు', 'ಕನ್ನಡ', 'മലയാളം', 'ਪੰਜਾਬੀ', 'ગુજરાતી', 'සිංහල', 'ේ', 'ภาษาไทย', 'น้ำ', 'ๆ ฯ ฿', 'ພາສາລາວ', 'မြန်မာ', 'ភាសាខ្មែរ', 'བོད་ཡིག', 'གྷ', 'ქართული', 'Հայերեն', 'አማርኛ',
    'ᠮᠣᠩᠭᠣᠯ', 'ᓀᐦᐃᔭᐍᐏᐣ', '𐌰𐌱', '𓀀𓁐', '𒀀', '𝄞', '\u{1d15f}', '\u{1d158}\u{1d165}', '𑄮', '𑒻', 'Γειά σου Κόσμε', 'ἀρχή', 'ά ά', ';', '·',
  ],
  emoji: ['🚀', 'deploy 🚀 now', 'a🚀b', '👩‍💻', '👨‍👩‍👧‍👦', '👍🏽', '🇩🇪🇫🇷', '❤️', '❤', '☎︎', '1️⃣', '#️⃣ *️⃣', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '✅ done ❌ failed', '⚠️ careful', '→ ← ⇒', '★☆', '🫠🪿', '🫩', '©®™', '\u200d', 'a\u200db'],
  control: [
    ...range(0, 8), 'a\u0000b', 'a\u0001b', 'a\u0007b\u0008', 'a\tb', 'a\nb', 'a\r\nb', 'a\u000bb', 'a\u000cb', 'a\u001bb', 'a\u001c\u001d\u001e\u001fb', 'a\u007fb', 'a\u0080b', 'a\u0085b', 'a\u009fb', '\u001b[31mred\u001b[0m',
    'a\ufffdb', '\ufffd', '\ufffd\ufffd x', 'a\u00a0b', 'a\u1680b', 'a\u180eb', ...range(0x2000, 0x200f).map((c) => `a${c}b`), 'a\u2028b', 'a\u2029b', ...range(0x202a, 0x202f).map((c) => `a${c}b`), 'a\u205fb', 'a\u2060b', 'a\u2061b', 'a\u2066b\u2069',
    'a\u3000b', 'a\ufeffb', '\ufeffstart', 'soft\u00adhyphen', 'a\u034fb', 'a\u061cb', 'a\u0600b', 'a\u06ddb', 'a\u070fb', 'a\u115fb', 'a\u17b4b', 'a\ufe0fb', 'a\ufff9b\ufffb', 'a\u{e0001}b', 'a\u{e0061}b', 'a\u{e0100}b', 'a\u{1d173}b', 'a\u{110bd}b', 'a\u{13430}b', 'a\u{1bca0}b',
  ],
  'private and unassigned': ['a\ue000b', 'a\uf8ffb', 'a\u{f0000}b', 'a\u{10fffd}b', 'a\ufdd0b', 'a\ufffeb', 'a\uffffb', 'a\u{1ffff}b', 'a\u{10ffff}b', 'a\u0378b', 'a\u0380b', 'a\u05ffb', 'a\u2065b', 'a\u20c1b', 'a\u2e5eb', 'a\ufff0b', 'a\u{e0fff}b', 'a\u{1fbfb}b', 'a\u{323b0}b', 'a\u{50000}b'],
  punctuation: [
    ...range(0x21, 0x2f), ...range(0x3a, 0x40), ...range(0x5b, 0x60), ...range(0x7b, 0x7e), '!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~', 'a!b"c#d$e%f&g\'h(i)j*k+l,m-n.o/p', '...', '…', '--- — – ‐ ‑ ‒ ―', '“quoted” ‘single’ „low‟ ‚', '«guillemets» ‹x›', '¿Qué? ¡Sí!', '§ ¶ † ‡ • ‣',
    '′ ″ ‴', '‰ ‱', '№ ℃ ℉ ℓ', '€ £ ¥ ₹ ₿ ¢ ¤', '± × ÷ ≠ ≤ ≥ ≈ ∞ √ ∑ ∫', '° ª º ¹²³ ½ ¼', 'x² + y² = z²', '¬ ¦ ¨ ¯ ´ ¸', '⟨a⟩ ⟦b⟧ 【c】', '⁅ ⁆', '‿ ⁀ ⁔', '﹏ ﹫ ＿', '︰ ﹐', '٪ ٫', '‽ ⸘', '⸺ ⸻', '𐄀 𐩐', '\u{1f676}', '🙶', '᠆', '༺༻', '\u2e52', '\u2e5d', '\u{10ead}', '\u1b7d', '\u{11f43}', '$100.00 ~50% a+b=c <tag> ^x | y `z`', 'a_b-c', '_', '__', '~', '^^', '`code`',
  ],
  long: [
    'a'.repeat(99), 'a'.repeat(100), 'a'.repeat(101), 'b'.repeat(1000), 'é'.repeat(100), 'e\u0301'.repeat(100), 'e\u0301'.repeat(101), 'x\u200b'.repeat(100), '한'.repeat(33), '한'.repeat(34), '각'.repeat(33) + 'a', '각'.repeat(34), '中'.repeat(120), 'ﬁ'.repeat(100), 'İ'.repeat(100), 'я'.repeat(100), 'я'.repeat(101), '😀'.repeat(101),
    'a'.repeat(60) + '-' + 'a'.repeat(60), 'supercalifragilisticexpialidocious'.repeat(3), 'supercalifragilisticexpialidocious'.repeat(2), 'word '.repeat(80).trim(), 'aGVsbG8gd29ybGQ'.repeat(8), 'q'.repeat(101) + ' ok', '!'.repeat(150),
  ],
  'unknown words': ['☃', 'ꙮ', 'a☃b', 'x ꙮ y', 'ᚠᚢᚦ', 'ƿ ȝ', 'zzzzqqqqxxxx', 'aꙮ', 'ꙮa', 'ab𓀀', 'hello𓀀world again', '☃☃☃', 'ꟿ', '⠓⠑⠇⠇⠕'],
  special: ['[CLS]', '[SEP] [MASK]', '[UNK]', '[PAD]', '##ing', '## ing', 'walk ##ing', '[CLS]hello[SEP]', '[cls] [Sep]', '[unused1]', '[unused99]', '[CLS', 'CLS]', '[ CLS ]', '[[CLS]]', 'the [MASK] sat on the [MASK].', '##', '#', '##a##b', '<s> </s> <unk>', '<|endoftext|>', '[CLS]\u0301', '[C\u200bLS]', '[UNK][UNK]'],
  'numbers, urls, code': [
    '0 1 12 123 1234 12345 1234567890', '3.14159', '1,000,000', '-42', '1e-9', '0xdeadbeef', '2024-12-31T23:59:59Z', '10:30', '192.168.0.1', '::1', '50%', '1st 2nd 3rd', '٣٫١٤', '12km', 'v1.2.3-rc.1+build.5', '550e8400-e29b-41d4-a716-446655440000', 'd41d8cd98f00b204e9800998ecf8427e',
    'https://example.com/path?q=tool&limit=10#top', 'user.name+tag@example.co.uk', 'file:///home/user/a%20b.txt', 'C:\\Users\\name\\file.txt', '/usr/local/bin', '~/.config/app.yaml', '{"a":[1,2,{"b":null}],"c":"d\\"e"}', '[]', '{}', '""', 'null true false',
    'func main() { fmt.Println("hi") }', 'for (let i = 0; i < n; i++) {}', 'x => x * 2', 'a && b || !c', 'if err != nil {\n\treturn err\n}', 'SELECT * FROM t WHERE a=1', '<div class="x">y</div>', '$HOME/${VAR}', 'rm -rf ./*', '# heading\n\n* item **bold** _it_', '| a | b |\n|---|---|', '^[a-z0-9_-]{1,64}$', 'git commit -m "fix: x"', 'a.b().c[0]->d::e', '\\n \\t \\u0041',
  ],
  'empty and space': ['', ' ', '  ', '\t', '\n', ' \t\r\n ', '\u00a0', '\u3000', '\u200b', '\u0000', '\u00ad', ' a', 'a ', '  a  b  ', '\n\na\n\nb\n\n', '\u2003a\u2003'],
}
// Texts that are no valid UTF-8, given as bytes. An invalid byte counts as U+FFFD.
const invalid = [[0xff], [0x61, 0xff, 0x62], [0x61, 0xc3], [0xc3, 0x28], [0xe2, 0x82], [0x61, 0xe2, 0x82, 0x62], [0xed, 0xa0, 0x80], [0x61, 0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80, 0x62], [0xf8, 0x88, 0x80, 0x80, 0x80], [0xc0, 0x80], [0xf0, 0x9f, 0x9a, 0x20, 0x78], [0xf4, 0x90, 0x80, 0x80], [0x80, 0x20, 0xbf], [0xe4, 0xb8, 0x20, 0xe4, 0xb8, 0xad]]

async function writeTokens() {
  const lines = []
  for (const [group, texts] of Object.entries(groups)) {
    const all = await ids(real, texts)
    texts.forEach((text, i) => lines.push(`{"group":${JSON.stringify(group)},"text":${ascii(JSON.stringify(text))},"ids":${JSON.stringify(all[i])}}`))
  }
  const texts = invalid.map((bytes) => new TextDecoder().decode(Uint8Array.from(bytes)))
  const all = await ids(real, texts)
  invalid.forEach((bytes, i) => lines.push(`{"group":"invalid UTF-8","bytes":"${Buffer.from(bytes).toString('base64')}","ids":${JSON.stringify(all[i])}}`))
  fs.writeFileSync('tokens.json', '[\n' + lines.join(',\n') + '\n]\n')
  return lines.length
}

// --- random.jsonl: 3,000 short strings over code points that go wrong, each with the words of the
// clear vocabulary below and a hash of the model's ids ---

const pools = [
  [...'abcdefghijklmnopqrstuvwxyz'], [...'ABCXYZISTΣ'], [...'0123456789'], [...'!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~'],
  ['ing', 'tool', 'search', 'create', 'un', 'the', 'Issue', 'é', 'List', '[CLS]', '[SEP]', '[MASK]', '##', '##ing'],
  [' ', ' ', ' ', '  ', '\t', '\n', '\r', '\u000b', '\u000c', '\u0085', '\u00a0', '\u1680', '\u2000', '\u2003', '\u200b', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000', '\ufeff'],
  [...range(0x300, 0x315), ...range(0x323, 0x328), '\u0338', '\u0340', '\u0341', '\u0343', '\u0344', '\u0345', '\u034f', '\u0360', '\u0483', '\u0488', '\u0591', '\u05c1', '\u064b', '\u0651', '\u0670', '\u06dd', '\u093c', '\u094d', '\u0e33', '\u0e38', '\u0eb3', '\u0f71', '\u0f72', '\u0f74', '\u20d0', '\u20dd', '\u302a', '\u302e', '\u3099', '\u309a', '\ufb1e', '\ufe20', '\u{1d165}', '\u{1d16d}', '\u{1d17b}', '\u{1e8d0}'],
  [...'éèêëñçåøßœæıİŁđŧŉſƒǅǆǰẞẛệộữﬁﬃﬅÅKΩ'], [...'αβγσςΣΆΐΰᾳᾼῼἀᾱϴϑ'], [...'абвйёЙЁїґўѣ'], [...'אבגשׁשבּ'], [...'ابتأآﻻﷺ٣'], [...'कखगक़ड़ऩयो१ি'], [...'ொைோেো്'], [...'กขคำๆ฿ນຳ'], [...'གྷཀྵཱིྲྀ'], [...'ᬆᬒ𑂚𑄮𑒻'],
  [...range(0x1100, 0x1112), ...range(0x1161, 0x1175), ...range(0x11a7, 0x11c2)], [...'가각한국어힣ㄱㅏﾡㅤ'], [...'あかがぱゟァガパーｶﾞ・「」。、'],
  [...'中国人日本語一龥㐀䶵'], [...'𠀀𪛖𫜴𫠝𬺡豈更丽⺀〇々'], [...'🚀👍😀❤☃★→©™€£°²½№…—“”‘’«»¿¡§•'], ['👩‍💻', '👍🏽', '🇩🇪', '1️⃣', '\u200d', '\ufe0f', '\u200c', '\u200e'],
  ['\u0000', '\u0001', '\u0008', '\u001b', '\u001f', '\u007f', '\u0080', '\u009f', '\u00ad', '\u061c', '\u180e', '\u2060', '\u2066', '\ufff9', '\ufffd', '\u{e0001}', '\u{e0041}', '\u{e0100}'], ['\ue000', '\uf8ff', '\u{f0000}', '\u{100000}', '\ufdd0', '\ufffe', '\uffff', '\u{10ffff}', '\u0378', '\u2065', '\u{1fbfb}', '\u{e0fff}'],
  null, // any code point
]

async function writeRandom() {
  const random = generator(20241)
  const below = (n) => Math.floor(random() * n)
  const any = () => {
    for (;;) {
      const c = [0x800, 0x3100, 0x10000, 0x20000, 0x110000][below(5)]
      const p = below(c)
      if (p < 0xd800 || p > 0xdfff) return cp(p)
    }
  }
  const texts = []
  while (texts.length < 3000) {
    // Half of the strings mix two pools only, so that marks meet the letters they belong to.
    const few = random() < 0.5 ? [below(pools.length), below(pools.length)] : null
    let s = ''
    for (let n = 2 + below(11); n > 0; n--) {
      const pool = pools[few ? few[below(2)] : below(pools.length)]
      s += pool ? pool[below(pool.length)] : any()
    }
    texts.push(s)
  }
  const clearWords = await words(texts)
  const all = (await ids(real, texts)).map((list) => createHash('sha256').update(list.join(' ')).digest('hex').slice(0, 12))
  const out = texts.map((text, i) => ascii(JSON.stringify([text, clearWords[i], all[i]]))).join('\n') + '\n'
  fs.writeFileSync('random.jsonl', out)
  return out.length
}

// --- codepoints.txt: what the normalizer and the splitter make of every code point ---

// clear has a vocabulary that shows the text as the model would see it: every code point of the
// planes 0 to 3 is a token, at the start of a word and within one. (Hangul syllables and private
// code points never arrive there; later planes become [UNK].)
const clearVocab = { '[PAD]': 0, '[UNK]': 1, '[CLS]': 2, '[SEP]': 3, '[MASK]': 4 }
for (let c = 0, id = 5; c < 0x33480; c++) {
  if (c < 0x21 || (c >= 0xac00 && c <= 0xf8ff)) continue
  clearVocab[cp(c)] = id++
  clearVocab['##' + cp(c)] = id++
}
const clear = plain({ ...read('tiny-f32/tokenizer.json'), model: { type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100, vocab: clearVocab } })

// words are the tokens of clear as text, one space between words.
async function words(texts) {
  return (await clear.encodeBatch(texts)).map((e) => e.getTokens().slice(1, -1).map((t) => (t.length > 2 && t.startsWith('##') ? t.slice(2) : ' ' + t)).join('').slice(1))
}

// Each line is a run of code points c and what becomes of "a" + c + "b": kept, dropped, space
// (c ends the word), alone (c is a word), unknown, nfd (c is replaced by its canonical
// decomposition), or, quoted, what stands for c.
async function writeCodePoints() {
  const lines = []
  let start = 0, last = -1, same = null
  const flush = () => same !== null && lines.push(`${start.toString(16)}${last > start ? '-' + last.toString(16) : ''} ${same}`)
  for (let base = 0; base < 0x110000; base += 0x1000) {
    const points = range(base, base + 0xfff).map((c) => c.codePointAt(0)).filter((c) => c < 0xd800 || c > 0xdfff)
    const all = await words(points.map((c) => 'a' + cp(c) + 'b'))
    points.forEach((c, i) => {
      const nfd = c >= 0xac00 && c <= 0xd7a3 ? cp(c).normalize('NFD') : null
      const kinds = { [`a${cp(c)}b`]: 'kept', ab: 'dropped', 'a b': 'space', [`a ${cp(c)} b`]: 'alone', '[UNK]': 'unknown', [`a${nfd}b`]: 'nfd' }
      const now = kinds[all[i]] ?? ascii(JSON.stringify(all[i].slice(1, -1)))
      if (now !== same || c !== last + 1) {
        flush()
        start = c
        same = now
      }
      last = c
    })
  }
  flush()
  fs.writeFileSync('codepoints.txt', lines.join('\n') + '\n')
  return lines.length
}

// --- variants.json: the switches of the normalizer, and the texts of the tiny models ---

async function writeVariants() {
  const tiny = read('tiny-f32/tokenizer.json')
  const variants = {
    uncased: {}, cased: { lowercase: false }, 'cased, accents stripped': { lowercase: false, strip_accents: true }, 'uncased, accents kept': { strip_accents: false },
    'ideographs joined': { handle_chinese_chars: false }, 'not cleaned': { clean_text: false },
  }
  const texts = ['tool search', 'Tool SEARCH', 'créér Créer', 'cre\u0301er', '中a中', 'a\u0000b', 'a\u200bb', 'a\tb\u3000c', 'tools, searching!', 'a\ufffdb', 'İ ß Σ', '[CLS] x']
  const out = []
  for (const [name, change] of Object.entries(variants)) {
    const normalizer = { ...tiny.normalizer, ...change }
    const all = await ids(plain({ ...tiny, normalizer }), texts)
    out.push(`{"name":${JSON.stringify(name)},"normalizer":${JSON.stringify(normalizer)},"tokens":[\n` + texts.map((text, i) => ` {"text":${ascii(JSON.stringify(text))},"ids":${JSON.stringify(all[i])}}`).join(',\n') + ']}')
  }
  fs.writeFileSync('variants.json', '[\n' + out.join(',\n') + '\n]\n')

  const models = ['', 'a', 'tool', 'Create a tool', 'search tools: create, search', 'xyz unknown ☃', '中 café', 'abcdefghijklmnop', 'tool '.repeat(30).trim(), 'a b c d e f g h i j k l m n', 'a b c d e f g h i j k l m n o']
  const all = await ids(plain(tiny), models)
  fs.writeFileSync('tiny.json', '[\n' + models.map((text, i) => `{"text":${ascii(JSON.stringify(text))},"ids":${JSON.stringify(all[i])}}`).join(',\n') + '\n]\n')
}

console.log('tokens.json', await writeTokens(), 'texts')
console.log('random.jsonl', await writeRandom(), 'bytes')
console.log('codepoints.txt', await writeCodePoints(), 'runs')
await writeVariants()
