// The search takes a leading dash for "without this word"; here it begins an option, such as --groups-from-folder,
// all of whose words are looked for, in the text rather than in titles.
const post = Worker.prototype.postMessage;
const option = /(^|\s)-+(\w[\w-]*)/g;
const wanted = (_, space, name) => space + name.split(/[-_]+/).filter(Boolean).map((word) => `+text:${word}`).join(" ");
Worker.prototype.postMessage = function (message, ...rest) {
  const isQuery = typeof message?.data === "string";
  const data = isQuery ? message.data.replace(option, wanted) : message?.data;
  return post.call(this, isQuery ? { ...message, data } : message, ...rest);
};
