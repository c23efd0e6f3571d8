// Compiles the schemas of a JSON array with the validator of the official client, one for all as for a list of tools, and
// prints why each cannot be compiled: null or a text.
import { readFileSync } from "node:fs";
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/sdk/validation/ajv";

const validator = new AjvJsonSchemaValidator();
console.warn = console.error = () => {};
const reasons = JSON.parse(readFileSync(process.argv[2], "utf8")).map((schema) => {
  try {
    validator.getValidator(schema);
    return null;
  } catch (error) {
    return String(error);
  }
});
process.stdout.write(JSON.stringify(reasons));
