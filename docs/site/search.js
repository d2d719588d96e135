// The search takes a leading dash for "without this word"; here it begins an option, such as --precision.
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  const isQuery = typeof message?.data === "string";
  const data = isQuery ? message.data.replace(/(^|\s)-+(?=\w)/g, "$1") : message?.data;
  return post.call(this, isQuery ? { ...message, data } : message, ...rest);
};
