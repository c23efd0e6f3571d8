// A hook that is a program: what is asked for comes on standard input, the answer
// goes to standard output. It keeps files with keys to itself, and puts the
// number of lines before what is read.
let input = '';
for await (const piece of process.stdin) input += piece;
const { event, ctx, args, result } = JSON.parse(input);

let answer = {};
if (event === 'pre_call' && /\.key$/.test(args.path ?? '')) {
  answer = { abort: `${ctx.name} does not read keys` };
} else if (event === 'post_call' && ctx.tool === 'read_text_file' && !result.isError) {
  const lines = result.content[0].text.split('\n').length;
  answer = { result: { ...result, content: [{ type: 'text', text: `${lines} lines` }, ...result.content] } };
}
process.stdout.write(JSON.stringify(answer));
