# The host of hooks and custom tools in Python: one process, started by toolfinch, which
# speaks JSON lines on what were its standard input and output. Python 3.9, standard
# library only. Functions get what is in mcp_proxy, below.
import sys

if sys.version_info < (3, 9):
    sys.exit("Python 3.9 or later is needed, this is " + sys.version.split()[0])

# A json.py in the folder of the configuration must not take the place of Python's own.
sys.path[:] = [entry for entry in sys.path if entry]  # before 3.11 there is no PYTHONSAFEPATH
import asyncio, ctypes, inspect, itertools, json, os, re, threading, traceback, types, typing
import collections.abc, importlib.util, linecache, tokenize, unicodedata

DIR = os.getcwd()  # the folder of the configuration
os.environ.pop("PYTHONSAFEPATH", None)  # for this process alone
HOST = (lambda: 0).__code__.co_filename  # what tracebacks call this text
MAX_TRACE = 4000  # characters of a traceback
MAX_TEXT = 1000  # characters of an error that clients read
MAX_LINE = (16 << 20) - 1000  # bytes of a message: toolfinch ends who sends more
MAX_ABANDONED = 32  # plain functions that run on although nobody waits for them

# What functions print goes to the log; the pipes are for messages alone.
incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.dup(1)
null = os.open(os.devnull, os.O_RDONLY)
os.dup2(null, 0)
os.dup2(2, 1)
sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
sys.path.insert(0, DIR)

class HookResult:
    """What a hook returns: None leaves the arguments or the result alone."""

    __slots__ = ("args", "result", "abort", "abort_reason")  # a misspelt one is an error

    def __init__(self, args=None, result=None, abort=False, abort_reason=None):
        self.args, self.result, self.abort, self.abort_reason = args, result, abort, abort_reason

class ToolCallContext:
    """What a function may know of the call that it runs for."""

    def __init__(self, about):
        self.view_name, self.tool_name, self.upstream_server = about.pop("view"), about.pop("tool"), about.pop("upstream")
        vars(self).update(about)  # name, session, client, principal, headers, meta

class ToolError(Exception):
    """A tool that was called failed, with this text."""

class ProxyContext(ToolCallContext):
    """What a custom tool calls other tools by."""

    def __init__(self, about, call, plain):
        super().__init__(about)
        self._call, self._plain = call, plain

    def call_tool(self, name, arguments=None, /, **more):
        """Calls "server.tool". To be awaited, but not in a plain function."""
        if not isinstance(name, str):
            raise TypeError("the name of a tool is text like server.tool, not %s" % type(name).__name__)
        if not isinstance(arguments, (type(None), collections.abc.Mapping)):
            raise TypeError("the arguments of a tool are a dict, not %s" % type(arguments).__name__)
        asked = ask(self._call, name, {**(arguments or {}), **more})
        if self._plain:
            return asyncio.run_coroutine_threadsafe(asked, loop).result()
        return asked

def custom_tool(name=None, description=None):
    """Makes a function a tool; without a description its docstring is one."""

    for said in (None if callable(name) else name, description):
        if not isinstance(said, (str, type(None))):
            raise TypeError("the name and the description of a custom tool are text, not %s" % type(said).__name__)

    def declare(function):
        function.__custom_tool__ = {"name": name or function.__name__, "description": description}
        return function

    if callable(name):
        function, name = name, None
        return declare(function)
    return declare

for _name in ("mcp_proxy.hooks", "mcp_proxy.custom_tools", "mcp_proxy"):
    sys.modules[_name] = _module = types.ModuleType(_name, "What toolfinch gives to hooks and custom tools.")
    for _public in (HookResult, ToolCallContext, ToolError, ProxyContext, custom_tool):
        _public.__module__ = "mcp_proxy"
        setattr(_module, _public.__name__, _public)
_module.__path__, _module.hooks, _module.custom_tools = [], sys.modules["mcp_proxy.hooks"], sys.modules["mcp_proxy.custom_tools"]

class Wrong(Exception):
    """A mistake that the text says all of."""

class Misanswered(Wrong):
    """A hook that returned what is no HookResult, or one that cannot be used."""

# Loading.

loaded = {}  # by kind and path

def load(kind, path):
    """Returns the functions that a dotted path names, by name, each with the parameter for its context."""
    if (kind, path) not in loaded:
        top = path.partition(".")[0]
        if top in sys.modules and not ours(getattr(sys.modules[top], "__file__", None) or "<") and os.path.exists(os.path.join(DIR, top + ".py")):
            raise Wrong("%s.py has the name of a module of Python: give it another one" % top)
        if kind == "tool" and is_module(path):
            module = importlib.import_module(path)
            found = [f for f in vars(module).values() if hasattr(f, "__custom_tool__") and (getattr(f, "__module__", path) + ".").startswith(path + ".")]
            if not found:
                raise Wrong("%s has no function with @custom_tool" % path)
        else:
            found = [attribute(path)]
        if kind != "tool":
            takes = ("context", "args", "result")[: 2 if kind == "pre_call" else 3]
            try:
                inspect.signature(found[0]).bind(*takes)
            except (TypeError, ValueError):  # ValueError: nothing says what it takes
                raise Wrong("%s does not take (%s), which %s is called with" % (path, ", ".join(takes), kind)) from None
        loaded[kind, path] = {declared(f)["name"]: (f, kind == "tool" and context_of(f)) for f in found}
    return loaded[kind, path]

def attribute(path):
    module, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(module), name, None)
    if found is None or inspect.ismodule(found):
        if is_module(path):
            raise Wrong("%s is a module: name a function in it, like %s.function" % (path, path))
        there = [n for n, v in vars(sys.modules[module]).items() if inspect.isfunction(v) and v.__module__ == module]
        raise Wrong("%s has no %s%s" % (module, name, there and "; it has " + ", ".join(there) or ""))
    if not callable(found):
        raise Wrong("%s is not a function" % path)
    if inspect.isclass(found):
        raise Wrong("%s is a class: name a function" % path)
    if inspect.isbuiltin(found) or standard(found):
        raise Wrong("%s is a part of Python: name a function of yours" % path)
    return found

def standard(function):
    """Tells functions of the standard library, which return no HookResult."""
    file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", "")
    library = os.path.join(os.path.dirname(os.__file__), "")
    return file.startswith("<frozen ") or file.startswith(library) and "site-packages" not in file

def is_module(path):
    try:
        return importlib.util.find_spec(path) is not None
    except ImportError:
        return False

def declared(function):
    return getattr(function, "__custom_tool__", {"name": getattr(function, "__name__", "tool"), "description": None})

def context_of(function):
    """The parameter that takes the ProxyContext, None for none."""
    hints = typing.get_type_hints(function)
    for name in inspect.signature(function).parameters:
        hint = hints.get(name)
        if {ProxyContext, ToolCallContext} & {h for h in (hint, *typing.get_args(hint)) if inspect.isclass(h)} or hint is None and name in ("ctx", "context"):
            return name

def describe(function, of):
    """A function as a tool: its name, its description, its parameters."""
    doc, hints = inspect.getdoc(function) or "", typing.get_type_hints(function, include_extras=True)
    parameters = []
    for name, p in inspect.signature(function).parameters.items():
        if name == of or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        if p.kind == p.POSITIONAL_ONLY:
            raise Wrong("the parameter %s cannot be given by its name" % name)
        schema = schema_of(hints.get(name, typing.Any))
        said = re.search(r"(?m)^\s*(?::param %s|%s\s*(?:\([^)]*\))?)\s*:\s*(\S.*)$" % (name, name), doc)
        if said and "description" not in schema:
            schema["description"] = said.group(1).strip()
        if p.default is not p.empty and p.default is not None:
            try:
                schema["default"] = json.loads(json.dumps(p.default, allow_nan=False))
            except (TypeError, ValueError):
                pass  # no JSON: the function has it by itself
        parameters.append({"name": name, "required": p.default is p.empty, "schema": schema})
    return dict(declared(function), description=declared(function)["description"] or doc, parameters=parameters)

TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
ARRAYS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable)
OBJECTS = (dict, collections.abc.Mapping)

def schema_of(hint):
    """The JSON Schema of a type hint; {} takes anything."""
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is None or origin in TYPES:
        return {"type": TYPES.get(origin, "null")}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is typing.Union or type(hint).__name__ == "UnionType":
        return {"anyOf": [schema_of(a) for a in args]}
    if origin in ARRAYS:
        return dict({"type": "array"}, **({"items": schema_of(args[0])} if args else {}))
    if origin in OBJECTS:
        return dict({"type": "object"}, **({"additionalProperties": schema_of(args[1])} if len(args) == 2 else {}))
    if hasattr(hint, "__metadata__"):  # Annotated
        said = [m for m in hint.__metadata__ if isinstance(m, str)][:1]
        return dict(schema_of(hint.__origin__), **({"description": said[0]} if said else {}))
    return {}

def files(error=None):
    """The files of modules in the folder that were imported, and those that an error names."""
    found = [getattr(m, "__file__", None) for m in list(sys.modules.values())]
    while error is not None:
        found += [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
        found.append(getattr(error, "filename", None))
        if isinstance(error, ModuleNotFoundError) and error.name:
            found.append(os.path.join(DIR, *error.name.split(".")) + ".py")
        error = error.__cause__ or error.__context__
    return sorted({os.path.abspath(f) for f in found if isinstance(f, str) and ours(f)})

def ours(file):
    file = os.path.abspath(file) if not file.startswith("<") else ""
    return file.startswith(os.path.join(DIR, "")) and "site-packages" not in file

# Errors.

PATHS = re.compile(r"(?<![\w.:/\\])(?:/|[A-Za-z]:[\\/])[^\s'\"]*[\\/]([^\s'\"\\/]*)")

def failure(error):
    """An error as toolfinch reads it: for clients, and for the owner."""
    if isinstance(error, (Wrong, ToolError)):
        return {"text": PATHS.sub(r"\1", str(error))[:MAX_TEXT], "misanswered": isinstance(error, Misanswered)}
    text, where, trace = str(error), "", error.__traceback__
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    if isinstance(error, SyntaxError) and error.filename:
        text, where = error.msg, (error.filename, error.lineno)
    else:
        for frame, line in traceback.walk_tb(trace):
            if ours(frame.f_code.co_filename):
                where = (frame.f_code.co_filename, line)
    while trace is not None and (trace.tb_frame.f_code.co_filename == HOST or "importlib" in trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    name = type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        name, text = "", "there is no module %s in the folder of the configuration, or that %s knows" % (error.name, os.path.basename(sys.executable))
    text = PATHS.sub(r"\1", ": ".join(filter(None, [where and "%s:%s" % (os.path.basename(where[0]), where[1]), name, text])))
    full = "" if isinstance(error, (SyntaxError, ModuleNotFoundError)) else "".join(traceback.format_exception(type(error), error, trace, limit=-12))
    return {"text": text[:MAX_TEXT], "where": where and "%s:%s" % (os.path.relpath(where[0], DIR), where[1]), "trace": full[-MAX_TRACE:]}

# Calls.

calls = {}  # tasks by number
asked = {}  # futures of tools that were called, by number
numbers = itertools.count(1)
abandoned = []  # threads

def encode(value):
    """Returns JSON as bytes."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()

def send(message, ok=b""):
    line = encode(message)
    if ok:
        line = line[:-1] + b',"ok":' + ok + b"}"
    write(line)

def write(line):
    rest = memoryview(line + b"\n")
    while rest:
        rest = rest[os.write(outgoing, rest) :]

async def ask(call, name, arguments):
    """Calls a tool by way of toolfinch."""
    number = next(numbers)
    try:
        line = encode({"call": call, "id": number, "tool": name, "arguments": arguments})
    except (TypeError, ValueError, RecursionError) as e:
        raise TypeError("the arguments for %s are no JSON: %s" % (name, e)) from None
    if len(line) > MAX_LINE:
        raise ValueError("the arguments for a tool are %d bytes of JSON, more than %d" % (len(line), MAX_LINE))
    asked[number] = loop.create_future()
    try:
        write(line)
        got = await asked[number]
    finally:
        del asked[number]
    if "error" in got:
        raise ToolError(got["error"])
    return json.loads(got["ok"])

async def run(function, *args, **more):
    """Calls a function, a plain one in a thread, so that it does not stall the others."""
    if not asynchronous(function):
        function = in_thread(function)
    result = await function(*args, **more)
    return await result if inspect.isawaitable(result) else result

def asynchronous(function):
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))

def in_thread(function):
    async def wait(*args, **more):
        done = loop.create_future()

        def work():
            try:
                put, value = done.set_result, function(*args, **more)
            except BaseException as e:
                put, value = done.set_exception, RuntimeError("StopIteration") if isinstance(e, StopIteration) else e
            loop.call_soon_threadsafe(lambda: done.done() or put(value))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            return await done
        except asyncio.CancelledError:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
            abandoned[:] = [t for t in abandoned if t.is_alive()] + [thread]
            if len(abandoned) > MAX_ABANDONED:
                print("%d plain functions did not end when their time was over" % MAX_ABANDONED)
                os._exit(3)
            raise

    return wait

async def answer(m):
    """What the function of a message comes to."""
    kind, functions, about = m["kind"], load(m["kind"], m["path"]), json.loads(m["context"])
    if kind == "tool":
        (function, of), arguments = functions[m["name"]], json.loads(m["args"])
        if of:
            arguments[of] = ProxyContext(about, m["id"], not asynchronous(function))
        return await run(function, **arguments)
    values = [json.loads(m[name]) for name in ("args", "data") if name in m]
    got = await run(next(iter(functions.values()))[0], ToolCallContext(about), *values)
    if got is None:
        return {}
    if not isinstance(got, HookResult):
        raise Misanswered("it returned %s: return a HookResult, or None" % type(got).__name__)
    if got.abort:
        return {"abort": str(got.abort_reason or (got.abort if isinstance(got.abort, str) else ""))}
    if kind == "pre_call" and got.result is not None:
        raise Misanswered("it returned a result: before a call there is none, pass abort=True to refuse")
    name, value = ("args", got.args) if kind == "pre_call" else ("result", got.result)
    return {} if value is None else {name: value}

async def serve(m):
    message, ok = {"id": m["id"]}, b""
    try:
        value = await answer(m)
        try:
            ok = encode(value)
        except (TypeError, ValueError, RecursionError) as e:
            raise Misanswered("what it returned is no JSON: %s" % e) from None
        if len(ok) > m["most"]:
            size, ok = len(ok), b""
            raise Misanswered("it returned %d bytes of JSON, more than %d" % (size, m["most"]))
    except asyncio.CancelledError:
        message["error"] = {"text": "it was cancelled"}
    except BaseException as e:  # also SystemExit, which would end the loop
        message["error"] = failure(e)
    calls.pop(m["id"], None)
    send(message, ok)

def unbegun(id, task):
    """Answers a call whose task was cancelled before it began: serve did not run."""
    if task.cancelled() and calls.pop(id, None):
        send({"id": id, "error": {"text": "it was cancelled"}})

def dispatch(line):
    m = json.loads(line)
    if m["do"] == "call":
        task = calls[m["id"]] = loop.create_task(serve(m))
        task.add_done_callback(lambda t, id=m["id"]: unbegun(id, t))
    elif m["do"] == "cancel" and m["id"] in calls:
        calls[m["id"]].cancel()
    elif m["do"] == "answer" and m["id"] in asked and not asked[m["id"]].done():
        asked[m["id"]].set_result(m)
    elif m["do"] == "load":
        try:
            found, error = load(m["kind"], m["path"]), None
            reply = {"tools": [describe(*f) for f in found.values()] if m["kind"] == "tool" else []}
            encode(reply)
        except BaseException as e:
            error, reply = e, {"error": failure(e)}
        send(dict(reply, id=m["id"], files=files(error)))

def read():
    for line in incoming:
        loop.call_soon_threadsafe(dispatch, line)
    os._exit(0)  # toolfinch is gone

async def main():
    global loop
    loop = asyncio.get_running_loop()
    threading.Thread(target=read, daemon=True).start()
    await asyncio.Event().wait()

asyncio.run(main())
